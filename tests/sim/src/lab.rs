//! Where runs happen, one after the other: the files they begin with, and the shop in them.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use http::Method;
use payonce_host::{App, Services};

use crate::operations::{self, MERCHANTS};
use crate::oracle::Oracle;
use crate::run::{Audited, Chooser, Report, Run};
use crate::scenario::{Outside, Scenario};
use crate::stage::{Stage, Wire};
use crate::world::{Entries, File, Shared};

/// How old a shop is that is past its retention, nanoseconds.
const AGE: u64 = 8 * 24 * 3_600_000_000_000;

/// The shop that the runs begin with, as the component made it.
pub struct Shop {
    /// Its database file.
    database: Vec<u8>,
    /// Its key-value store.
    entries: Entries,
    now: u64,
    /// A submit token for each merchant.
    tokens: Vec<String>,
}

/// The services of the application, by whom it speaks to.
#[derive(Clone)]
pub struct Surroundings {
    pub alone: Services,
    pub receiver: Services,
    pub channel: Services,
}

/// Where runs happen, one after the other.
pub struct Lab {
    app: Arc<App>,
    services: Surroundings,
    directory: tempfile::TempDir,
    shop: Option<Stocked>,
    audited: Audited,
}

/// A shop with its files in the lab.
struct Stocked {
    shop: Arc<Shop>,
    /// As it was in the beginning.
    template: rusqlite::Connection,
    schema_version: i64,
    /// What the runs change.
    file: Arc<File>,
    restorer: rusqlite::Connection,
}

impl Stocked {
    fn new(shop: Arc<Shop>, directory: &Path) -> Result<Self> {
        let (template, file) = (directory.join("template.db"), directory.join("shop.db"));
        std::fs::write(&template, &shop.database)?;
        std::fs::write(&file, &shop.database)?;
        let template = rusqlite::Connection::open(template)?;
        let schema_version =
            template.pragma_query_value(None, "schema_version", |row| row.get(0))?;
        let restorer = rusqlite::Connection::open(&file)?;
        restorer.pragma_update(None, "synchronous", "OFF")?;
        Ok(Self {
            shop,
            template,
            schema_version,
            file: File::new(file, true),
            restorer,
        })
    }

    /// Puts the file back to where a run begins.
    fn restore(&mut self) -> Result<()> {
        let backup = rusqlite::backup::Backup::new(&self.template, &mut self.restorer)?;
        ensure!(
            backup.step(-1)? == rusqlite::backup::StepResult::Done,
            "the shop is not back"
        );
        drop(backup);
        // A copy counts as a new schema; this one is the one that all connections know.
        self.restorer
            .pragma_update(None, "schema_version", self.schema_version)?;
        Ok(())
    }
}

impl Lab {
    /// A lab for an application.
    pub fn new(app: Arc<App>, services: Surroundings, shop: Option<Arc<Shop>>) -> Result<Self> {
        // In memory where the system has a place for that: thousands of short-lived files.
        let directory = match tempfile::tempdir_in("/dev/shm") {
            Ok(directory) => directory,
            Err(_) => tempfile::tempdir()?,
        };
        let shop = shop.map(|shop| Stocked::new(shop, directory.path()));
        Ok(Self {
            app,
            services,
            shop: shop.transpose()?,
            audited: Audited::new(),
            directory,
        })
    }

    /// The file that a run begins with.
    fn file(&mut self, empty: bool) -> Result<Arc<File>> {
        if let Some(shop) = self.shop.as_mut().filter(|_| !empty) {
            shop.restore()?;
            return Ok(Arc::clone(&shop.file));
        }
        let path = self.directory.path().join("empty.db");
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut name = path.clone().into_os_string();
            name.push(suffix);
            match std::fs::remove_file(name) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(File::new(path, false))
    }

    fn stage(&self, outside: Outside, world: Shared) -> Stage {
        let services = match outside {
            Outside::Nobody => &self.services.alone,
            Outside::Receiver => &self.services.receiver,
            Outside::Channel => &self.services.channel,
        };
        Stage::new(Arc::clone(&self.app), services.clone(), world)
    }

    /// Makes the shop by sending its requests to the component, one after the other.
    pub fn open_shop(&mut self) -> Result<Arc<Shop>> {
        let world = Shared::new(self.file(true)?, &Entries::new(), 0);
        let mut stage = self.stage(Outside::Receiver, world.clone());
        let mut tokens = Vec::new();
        for merchant in MERCHANTS {
            let token = Wire::new(&format!("key-{merchant}"), Method::POST, "/v1/tokens");
            let token = stage.settle(0, token)?;
            ensure!(token.status == 201, "no token: {token}");
            let body: serde_json::Value = serde_json::from_str(&token.body)?;
            tokens.push(body["token"].as_str().context("no token")?.to_owned());
            for (index, request) in operations::fixture().into_iter().enumerate() {
                let mut wire = Wire::of(merchant, &request);
                wire.header("idempotency-key", &format!("fixture-{index}"));
                let answer = stage.settle(0, wire)?;
                ensure!(answer.is_final(), "the shop cannot be opened: {answer}");
                stage.rest();
            }
        }
        let entries = world.lock().entries();
        drop(stage);
        let now = world.lock().now();
        drop(world);
        let shop = Arc::new(Shop {
            database: std::fs::read(self.directory.path().join("empty.db"))?,
            entries,
            now,
            tokens,
        });
        self.shop = Some(Stocked::new(Arc::clone(&shop), self.directory.path())?);
        Ok(shop)
    }

    /// Does one run. With `traced` its report says what happened.
    ///
    /// # Errors
    /// Where the simulation itself fails, which says nothing about the component.
    pub fn run(
        &mut self,
        scenario: &Scenario,
        chooser: &mut dyn Chooser,
        traced: bool,
    ) -> Result<Report> {
        let file = self.file(scenario.empty)?;
        let shop = self.shop.as_ref().map(|stocked| &*stocked.shop);
        let nothing = Entries::new();
        let (entries, now) = match shop {
            Some(shop) if scenario.aged => (&shop.entries, shop.now + AGE),
            Some(shop) => (&nothing, shop.now),
            None => (&nothing, 0),
        };
        let world = Shared::new(Arc::clone(&file), entries, now);
        let stage = self.stage(scenario.outside, world.clone());
        let tokens = shop.map_or(&[][..], |shop| &shop.tokens);
        let oracle = Oracle::new(file, scenario);
        let mut run = Run::new(scenario, stage, world, oracle, tokens, &mut self.audited);
        run.traced = traced;
        run.run(chooser)
    }
}
