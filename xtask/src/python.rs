//! Programs from the Python Package Index, for tests: schemathesis, which tries out the OpenAPI document.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::workspace;

/// Installs what `tests/schemathesis/requirements.txt` names into `target/schemathesis`, unless it is there.
/// Returns whether it is; without Python, which nothing else needs, it is not.
pub fn ensure_schemathesis() -> Result<bool, String> {
    let requirements = workspace::root().join("tests/schemathesis/requirements.txt");
    let folder = workspace::root().join("target/schemathesis");
    let wanted = read(&requirements)?;
    // Written last, so that an installation that was interrupted is made again.
    let installed = folder.join("requirements.txt");
    if read(&installed).is_ok_and(|installed| installed == wanted) {
        return Ok(true);
    }
    let Some(python) = workspace::on_path("python3") else {
        eprintln!("xtask: there is no python3 on the PATH: the test with schemathesis is skipped");
        return Ok(false);
    };
    eprintln!("xtask: installing schemathesis");
    make_environment(&python, &folder)?;
    let mut pip = Command::new(folder.join("bin/python3"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    workspace::run(pip.arg("--requirement").arg(&requirements))?;
    fs::write(&installed, wanted).map_err(|error| format!("{}: {error}", installed.display()))?;
    Ok(true)
}

/// Makes an empty virtual environment that has pip.
fn make_environment(python: &Path, folder: &Path) -> Result<(), String> {
    let venv = |options: &[&str]| {
        let mut venv = Command::new(python);
        venv.args(["-m", "venv", "--clear"])
            .args(options)
            .arg(folder);
        venv
    };
    if workspace::output(&mut venv(&[])).is_some() {
        return Ok(());
    }
    // Debian has ensurepip in a package of its own, and the pip of the system can do as well: it is
    // seen from inside, and installs inside.
    workspace::run(&mut venv(&["--without-pip", "--system-site-packages"]))
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}
