//! A small file system that has no room now and then.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A file system of its own, and the file that fills it.
pub struct Disk(PathBuf);

impl Disk {
    /// The file system that holds a folder.
    pub fn of(folder: &Path) -> Self {
        Self(folder.join("ballast"))
    }

    /// Leaves no room.
    ///
    /// # Errors
    /// When a write fails for another reason.
    pub async fn fill(&self) -> Result<()> {
        let path = self.0.clone();
        let filled = tokio::task::spawn_blocking(move || {
            let mut ballast = File::create(path)?;
            let mut size = 1 << 20;
            // Down to the last page.
            while size >= 4096 {
                match ballast.write_all(&vec![0; size]) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => size /= 2,
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        });
        filled.await?.context("cannot fill the disk")
    }

    /// Makes room again.
    ///
    /// # Errors
    /// When the file stays.
    pub fn free(&self) -> Result<()> {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).context("cannot empty the disk")
            }
            _ => Ok(()),
        }
    }
}
