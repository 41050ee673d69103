//! What payonce takes: the component's size, the memory of an instance, and whether the host's memory
//! grows under a long mixed load.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use tokio::time::sleep;

use crate::host::{Host, Program};
use crate::shop::Shop;

/// Orders of one step of the mixed load.
const STEP: usize = 500;

/// Requests for each order: create, pay, replay, and two looks.
const REQUESTS: usize = 5;

/// How long instances may take to end behind the last answer before the look does not wait for them.
const END_LIMIT: Duration = Duration::from_secs(180);

/// What the memory was at one point.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Requests so far.
    pub requests: usize,
    /// The host right after the last answer, bytes; `None` where the system does not tell.
    pub busy: Option<u64>,
    /// The host when all instances are gone, bytes.
    pub resident: Option<u64>,
    /// How long it took until they were gone.
    pub lingered: Duration,
    /// The peak of linear memory of the largest instance since the mark before, bytes.
    pub largest: u64,
    /// The mean of the peaks of all of them.
    pub mean: f64,
}

/// The size of the component that a manifest names, in bytes.
pub fn component_size(manifest: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let source = component_source(&text)?;
    let path = manifest.parent().unwrap_or(Path::new("")).join(source);
    let data = std::fs::metadata(&path);
    Ok(data
        .with_context(|| format!("no component at {}", path.display()))?
        .len())
}

fn component_source(manifest: &str) -> Result<PathBuf> {
    let manifest: toml::Table = toml::from_str(manifest)?;
    let components = manifest.get("component").and_then(toml::Value::as_table);
    let first = components.and_then(|components| components.values().next());
    let source = first.and_then(|component| component.get("source")?.as_str());
    Ok(source
        .context("the manifest names no component file")?
        .into())
}

/// Sends so many requests, and looks at the memory after a fifth of them and at the end.
pub async fn growth(
    program: &Program,
    manifest: &Path,
    data: &Path,
    requests: usize,
) -> Result<[Mark; 2]> {
    std::fs::create_dir_all(data)?;
    let log = data.join("host.log");
    let stderr = File::create(&log)?;
    let flags = ["--print-instance-stats"];
    let host = Host::start(program, manifest, data, &flags, stderr.into()).await?;
    let mut shop = Shop::open(&host).await?;

    let steps = requests.div_ceil(STEP * REQUESTS).max(2);
    let first = steps.div_ceil(5);
    let mut gone = Gone::default();
    let mut marks = Vec::new();
    let mut paid: Vec<String> = Vec::new();
    for step in 1..=steps {
        paid = mixed(&mut shop, &paid).await?;
        if step == first || step == steps {
            let mark = look(&host, &log, shop.sent(), &mut gone).await?;
            eprintln!("memory: looked after {} requests", mark.requests);
            marks.push(mark);
        }
    }
    <[Mark; 2]>::try_from(marks)
        .ok()
        .context("there are two marks")
}

/// What the instances that are gone said.
#[derive(Default)]
struct Gone {
    requests: usize,
    /// How much of the log was read.
    read: usize,
}

/// Looks at the memory now and when the instances that served `sent` requests are gone.
async fn look(host: &Host, log: &Path, sent: usize, gone: &mut Gone) -> Result<Mark> {
    let busy = host.resident_memory();
    let started = Instant::now();
    let mut peaks = Vec::new();
    while gone.requests < sent && started.elapsed() < END_LIMIT {
        sleep(Duration::from_millis(250)).await;
        let log = std::fs::read(log)?;
        let new = log.get(gone.read..).unwrap_or_default();
        let lines = new
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        for instance in String::from_utf8_lossy(&new[..lines])
            .lines()
            .filter_map(instance)
        {
            gone.requests += instance.requests;
            peaks.push(instance.peak_memory_bytes);
        }
        gone.read += lines;
    }
    if gone.requests < sent {
        eprintln!("memory: after {END_LIMIT:?} there are still instances");
    }
    Ok(Mark {
        requests: sent,
        busy,
        resident: host.resident_memory(),
        lingered: started.elapsed(),
        largest: peaks.iter().copied().max().unwrap_or(0),
        mean: peaks.iter().sum::<u64>() as f64 / peaks.len() as f64,
    })
}

/// Creates orders, then pays them while those `paid` before are replayed and looked at. Returns the
/// orders that are now paid.
async fn mixed(shop: &mut Shop, paid: &[String]) -> Result<Vec<String>> {
    let orders = shop.orders(STEP).await?;
    // The first step has none before, and looks at orders that are not paid yet.
    let mut calls = Vec::with_capacity(STEP * (REQUESTS - 1));
    for (index, order) in orders.iter().enumerate() {
        calls.push(shop.payment(order)?);
        match paid.get(index) {
            Some(paid) => {
                calls.push(shop.payment(paid)?.replayed());
                calls.push(shop.look(&format!("{paid}/payments"))?);
            }
            None => calls.extend([shop.look(order)?, shop.look(order)?]),
        }
        calls.push(shop.look(order)?);
    }
    shop.all(calls).await?;
    Ok(orders)
}

/// What the host says about an instance that it drops.
#[derive(Deserialize)]
struct Line {
    instance: Instance,
}

#[derive(Deserialize)]
struct Instance {
    requests: usize,
    peak_memory_bytes: u64,
}

/// The instance in a line of the host's log, which has lines of the component too.
fn instance(line: &str) -> Option<Instance> {
    let start = line.find(r#"{"instance":"#)?;
    let line: Line = serde_json::from_str(line.get(start..)?).ok()?;
    Some(line.instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_component_is_the_one_of_the_manifest() {
        let manifest = "[component.shop]\nsource = \"a/b.wasm\"\n";
        assert_eq!(component_source(manifest).unwrap(), Path::new("a/b.wasm"));
        assert!(component_source("[component.shop]\n").is_err());
    }

    #[test]
    fn instances_are_told_from_the_components_lines() {
        let line = r#"{"instance":{"requests":128,"peak_memory_bytes":65536,"failed":false}}"#;
        let found = instance(line).unwrap();
        assert_eq!((found.requests, found.peak_memory_bytes), (128, 65536));
        assert!(instance(r#"{"method":"GET","status":200}"#).is_none());
    }
}
