//! The numbers, as a table and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::contest::{By, Contest, Outcome};
use crate::drive::Sample;
use crate::footprint::Mark;
use crate::stats::{Target, median, spread};

/// Largest component, in bytes.
const SIZE: f64 = 1.5e6;

/// Largest instance, in bytes of linear memory.
const INSTANCE: f64 = 8e6;

/// Memory at the end, as a multiple of that after a fifth of the requests, that is no growth yet:
/// allocators and caches breathe.
const GROWTH: f64 = 1.1;

const NOTE: &str = "\
Bare: a component that makes one host call a request and does nothing else, on the same host. Both
get the same method, headers and body. `ratio` is payonce / bare, the median of the rounds, and in
brackets the lowest and the highest round. Both sides and the load generator share this machine:
only the ratios say something elsewhere. Megabytes are millions of bytes.";

/// Everything measured.
#[derive(Default)]
pub struct Report {
    table: String,
    measures: Vec<Value>,
    short: Vec<String>,
    /// The host under load: not judged, but what growth comes of.
    busy: Vec<Value>,
}

impl Report {
    /// Adds a contest.
    pub fn contest(&mut self, contest: &Contest, outcome: &Outcome) {
        let ratio = median(&outcome.ratios);
        let (least, most) = spread(&outcome.ratios);
        let value = format!("ratio {ratio:.2} ({least:.2} to {most:.2})");
        let met = self.row(contest.name, contest.title, &value, contest.target, ratio);
        for (name, sample) in [("bare", &outcome.bare), ("payonce", &outcome.payonce)] {
            let (p50, p99) = (sample.latency_ms(0.5), sample.latency_ms(0.99));
            _ = writeln!(
                self.table,
                "      {name:<8}{:>9.0} a second   p50 {p50:>8.3} ms   p99 {p99:>8.3} ms",
                sample.throughput()
            );
        }
        self.measures.push(json!({
            "name": contest.name,
            "title": contest.title,
            "connections": contest.connections,
            "ratio_of": match contest.by {
                By::Throughput => "throughput",
                By::Latency => "median latency",
            },
            "bare": side(&outcome.bare),
            "payonce": side(&outcome.payonce),
            "ratios": outcome.ratios,
            "ratio": ratio,
            "target": contest.target.to_string(),
            "met": met,
        }));
    }

    /// Adds the component's size.
    pub fn size(&mut self, bytes: u64) {
        self.bytes("size", "component file", bytes, SIZE);
    }

    /// Adds what the long load did to memory.
    pub fn growth(&mut self, [early, late]: [Mark; 2]) {
        self.bytes(
            "instance-memory",
            "linear memory of the largest instance",
            early.largest.max(late.largest),
            INSTANCE,
        );
        let requests = [early.requests, late.requests];
        self.grown(
            "instance-growth",
            "mean peak of an instance, late / early",
            requests,
            [early.mean, late.mean],
        );
        let (Some(first), Some(second)) = (early.resident, late.resident) else {
            self.table
                .push_str("----  host-growth: only measured on Linux\n");
            return;
        };
        self.grown(
            "host-growth",
            "resident memory of the host without instances, late / early",
            requests,
            [first as f64, second as f64],
        );
        for mark in [early, late] {
            let busy = mark.busy.map_or(f64::NAN, |bytes| bytes as f64 / 1e6);
            let lingered = mark.lingered.as_secs_f64();
            _ = writeln!(
                self.table,
                "      right after request {:>7} {busy:>8.2} MB, {lingered:.1} s until no instance was left",
                mark.requests
            );
            self.busy.push(json!({
                "requests": mark.requests,
                "megabytes": busy,
                "seconds_until_no_instance_was_left": lingered,
            }));
        }
    }

    fn bytes(&mut self, name: &'static str, title: &str, bytes: u64, limit: f64) {
        let megabytes = bytes as f64 / 1e6;
        let target = Target::AtMost(limit / 1e6);
        let met = self.row(
            name,
            title,
            &format!("{megabytes:.2} MB"),
            target,
            megabytes,
        );
        self.measures.push(json!({
            "name": name,
            "title": title,
            "megabytes": megabytes,
            "target": target.to_string(),
            "met": met,
        }));
    }

    fn grown(&mut self, name: &'static str, title: &str, requests: [usize; 2], bytes: [f64; 2]) {
        let [first, second] = bytes.map(|bytes| bytes / 1e6);
        let ratio = second / first;
        let value = format!("ratio {ratio:.2}");
        let target = Target::AtMost(GROWTH);
        let met = self.row(name, title, &value, target, ratio);
        for (requests, megabytes) in requests.into_iter().zip([first, second]) {
            _ = writeln!(
                self.table,
                "      up to {requests:>7} requests {megabytes:>8.2} MB"
            );
        }
        self.measures.push(json!({
            "name": name,
            "title": title,
            "requests": requests,
            "megabytes": [first, second],
            "ratio": ratio,
            "target": target.to_string(),
            "met": met,
        }));
    }

    /// Adds a verdict.
    fn row(
        &mut self,
        name: &'static str,
        title: &str,
        value: &str,
        target: Target,
        number: f64,
    ) -> bool {
        let met = target.met(number);
        let verdict = if met { "met " } else { "MISS" };
        _ = writeln!(
            self.table,
            "{verdict}  {name}: {value}, target {target}\n      {title}"
        );
        if !met {
            self.short.push(name.to_owned());
        }
        met
    }

    /// For people.
    pub fn table(&self) -> String {
        let met = self.measures.len() - self.short.len();
        let mut verdict = format!("{met} of {} targets met", self.measures.len());
        if !self.short.is_empty() {
            _ = write!(verdict, "; missed: {}", self.short.join(", "));
        }
        format!("{NOTE}\n\n{}\n{verdict}", self.table)
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "processors": std::thread::available_parallelism().map_or(0, usize::from),
            "missed": self.short,
            "measures": self.measures,
            "host_right_after_load": self.busy,
        })
    }
}

fn side(sample: &Sample) -> Value {
    json!({
        "requests": sample.requests(),
        "per_second": sample.throughput(),
        "p50_ms": sample.latency_ms(0.5),
        "p99_ms": sample.latency_ms(0.99),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn mark(requests: usize, resident: u64) -> Mark {
        Mark {
            requests,
            busy: Some(2 * resident),
            resident: Some(resident),
            lingered: Duration::from_secs(1),
            largest: 2_000_000,
            mean: 1e6,
        }
    }

    #[test]
    fn what_is_missed_is_said_in_the_table_and_in_json() {
        let mut report = Report::default();
        report.size(1_600_000);
        report.growth([mark(20, 100_000_000), mark(100, 105_000_000)]);
        let table = report.table();
        assert!(table.contains("MISS  size: 1.60 MB, target <= 1.5"));
        assert!(table.contains("met   host-growth: ratio 1.05"));
        assert!(table.ends_with("3 of 4 targets met; missed: size"));
        let json = report.json();
        assert_eq!(json["missed"], json!(["size"]));
        assert_eq!(json["measures"][1]["megabytes"], 2.0);
    }
}
