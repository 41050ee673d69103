//! Components that are wrong on purpose, for the simulation to find.
//!
//! A defect is a change of the text of the source. It is made in a copy below `target/`, so that no build
//! of the repository can contain one, and fails when the text is no longer there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::component::PAYONCE;
use crate::toolchain::{TARGET, Toolchain};
use crate::workspace;

/// A profile for builds that run once.
const PROFILE: &str = "defects";

/// A seeded defect.
pub struct Defect {
    pub name: &'static str,
    /// File, text that occurs once in it, and what stands there instead.
    edits: &'static [(&'static str, &'static str, &'static str)],
    /// Part of the names of the scenarios that must find it.
    pub scenario: &'static str,
}

const JOURNAL: &str = "src/store/journal/mod.rs";
const WALK: &str = "src/idempotency/mod.rs";
const SETTLEMENT: &str = "src/settlement/mod.rs";
const SCHEMA: &str = "migrations/0001_checkout.sql";

/// What is seeded.
pub const DEFECTS: &[Defect] = &[
    Defect {
        name: "a second live payment passes the last gate",
        edits: &[(
            SCHEMA,
            "CREATE UNIQUE INDEX IF NOT EXISTS payments_one_live",
            "CREATE INDEX IF NOT EXISTS payments_one_live",
        )],
        scenario: "order-two-keys-one-order",
    },
    Defect {
        name: "nothing guards an order that is paid",
        edits: &[
            (
                SCHEMA,
                "CREATE UNIQUE INDEX IF NOT EXISTS payments_one_live",
                "CREATE INDEX IF NOT EXISTS payments_one_live",
            ),
            (
                SCHEMA,
                "AND order_no = new.order_no AND status = new.from_status\n      AND version = new.version - (new.outcome = 'applied') AND user_id",
                "AND order_no = new.order_no AND user_id",
            ),
        ],
        scenario: "order-two-keys-one-order",
    },
    Defect {
        name: "the guard of a deposit ignores the balance",
        edits: &[(
            SCHEMA,
            "WHERE new.balance - new.amount IS NOT coalesce(",
            "WHERE 0 AND coalesce(",
        )],
        scenario: "order-two-deposits",
    },
    Defect {
        name: "a payment is not guarded against an empty wallet",
        edits: &[
            (
                SCHEMA,
                "CHECK (balance BETWEEN 0 AND 9007199254740991),\n  updated_at  INTEGER",
                ",\n  updated_at  INTEGER",
            ),
            (
                SCHEMA,
                "WHERE (new.outcome = 'applied') IS NOT (",
                "WHERE 0 AND (",
            ),
        ],
        scenario: "order-two-orders-one-wallet",
    },
    Defect {
        name: "a booking has one side",
        edits: &[(
            SCHEMA,
            "VALUES (new.subject_id, 'wallet:' || new.user_id, new.merchant_id, new.currency, -new.amount, new.created_at),\n         (new.subject_id",
            "VALUES (new.subject_id",
        )],
        scenario: "crash-pay",
    },
    Defect {
        name: "the schema is recorded before it is complete",
        edits: &[(
            SCHEMA,
            ") STRICT;\n\n-- The journal.",
            ") STRICT;\n\nINSERT INTO schema_migrations (version) VALUES (1) ON CONFLICT DO NOTHING;\n\n-- The journal.",
        )],
        scenario: "crash-first-start",
    },
    Defect {
        name: "a cached answer is sent without a look at the fingerprint",
        edits: &[(
            WALK,
            "same_request(&fingerprint, &request.fingerprint)?;",
            "",
        )],
        scenario: "crash-pay",
    },
    Defect {
        name: "an answer from the journal is sent without a look at the fingerprint",
        edits: &[(
            WALK,
            "same_request(&recorded.fingerprint, fingerprint)?;",
            "_ = fingerprint;",
        )],
        scenario: "order-one-key-two-requests",
    },
    Defect {
        name: "a replay is built anew",
        edits: &[(
            WALK,
            "Ok(Reply::replay(recorded.answer))",
            "let body = format!(\"{} \", recorded.answer.body);\n        Ok(Reply::replay(Answer { body, ..recorded.answer }))",
        )],
        scenario: "crash-pay",
    },
    Defect {
        name: "the answer is sent before the commit",
        edits: &[
            (
                JOURNAL,
                "match statements::write(&self.database, &rows).await {",
                "for (job, operation) in jobs.iter().zip(&operations) {\n                *lock(&job.reply) = Some(Ok(Verdict::Appended(operation.answer.clone())));\n            }\n            match statements::write(&self.database, &rows).await {",
            ),
            (
                JOURNAL,
                "while lock(&reply).is_none() && leader.round().await {}\n",
                "",
            ),
            (
                JOURNAL,
                "wasip3::spawn(async move { while leader.round().await {} });\n",
                "wasip3::spawn(async move { while leader.round().await {} });\n            while lock(&reply).is_none() { runtime::sleep_millis(1).await }\n",
            ),
        ],
        scenario: "crash-pay",
    },
    Defect {
        name: "an operation that lost its guard is taken for applied",
        edits: &[(
            JOURNAL,
            "if appended.contains(&job.entry.id()) {",
            "_ = &appended; if true {",
        )],
        scenario: "order-two-keys-one-order",
    },
    Defect {
        name: "a failed commit is taken for done",
        edits: &[(
            JOURNAL,
            "Err(error) if error.is_busy() => self.after_error(jobs, error).await,\n                Err(error) => {",
            "Err(_) => {\n                    for (job, operation) in jobs.into_iter().zip(operations) {\n                        job.reply(Ok(Verdict::Appended(operation.answer)));\n                    }\n                    return self.put_back(again);\n                }\n                #[allow(unreachable_patterns)]\n                Err(error) => {",
        )],
        scenario: "database-fault-pay",
    },
    Defect {
        name: "its own row is told by an equal answer",
        edits: &[(
            JOURNAL,
            "let own = job.unsure.contains(&recorded);",
            "let own = job.unsure.iter().any(|unsure| unsure.answer == recorded.answer);",
        )],
        scenario: "order-and-database-fault-same-key-create",
    },
    Defect {
        name: "the journal is not asked when the key-value store knows nothing",
        edits: &[(
            JOURNAL,
            "if let Some(recorded) = recorded {",
            "if let Some(recorded) = recorded.filter(|_| false) {",
        )],
        scenario: "order-same-key-pay",
    },
    Defect {
        name: "a decline is not recorded",
        edits: &[(
            "src/domain/commands/pay_order.rs",
            "Operation::declined(self.operation(), given, Code::InsufficientFunds, detail)\n                .moving(order, order)",
            "return Err(Problem::new(Code::InsufficientFunds, detail))",
        )],
        scenario: "crash-decline",
    },
    Defect {
        name: "a claim has no end",
        edits: &[(
            "src/idempotency/claims.rs",
            "!horizon.is_over(Timestamp::from_millis(claim.lease_until))",
            "claim.lease_until > 0 || !horizon.is_over(horizon.now)",
        )],
        scenario: "crash-pay",
    },
    Defect {
        name: "a claim tells whose key it is",
        edits: &[(
            WALK,
            "// The first answer may be in the journal before it is in the cache, or only there.\n",
            "same_request(&claim.fingerprint, &request.fingerprint)?;\n",
        )],
        scenario: "order-and-crash-one-key-two-requests",
    },
    Defect {
        name: "merchants share the cached answers",
        edits: &[(
            "src/idempotency/record.rs",
            "hash.update(merchant.as_str());",
            "_ = merchant;",
        )],
        scenario: "two-merchants-one-key",
    },
    Defect {
        name: "a submit token redeems every request that brings it",
        edits: &[(
            "src/idempotency/key.rs",
            "text: format!(\"token:{}\", token.id),",
            "text: format!(\"token:{}\", crate::runtime::uuid(crate::runtime::now())),",
        )],
        scenario: "same-key-checkout",
    },
    Defect {
        name: "an event that nobody took counts as sent",
        edits: &[(
            "src/delivery/mod.rs",
            "Ok(()) => Attempt::Sent,",
            "_ if attempts > 0 => Attempt::Sent,\n            Ok(()) => Attempt::Sent,",
        )],
        scenario: "delivery-and-network-faults",
    },
    Defect {
        name: "a refund is not counted",
        edits: &[(
            "migrations/0002_operations.sql",
            "refunded_amount = refunded_amount + new.amount",
            "refunded_amount = refunded_amount",
        )],
        scenario: "crash-refund",
    },
    Defect {
        name: "a coupon is granted beyond the limit",
        edits: &[
            (
                "migrations/0002_operations.sql",
                "INTEGER CHECK (number <= grant_limit)",
                "INTEGER",
            ),
            (
                "migrations/0002_operations.sql",
                "AND granted >= grant_limit);",
                "AND 0);",
            ),
        ],
        scenario: "order-one-coupon-two-users",
    },
    Defect {
        name: "an order may skip versions",
        edits: &[(
            SCHEMA,
            "WHERE new.version <> old.version + 1\n    OR NOT CASE",
            "WHERE NOT CASE",
        )],
        scenario: "crash-pay",
    },
    Defect {
        name: "an unclear answer of the channel is a decline",
        edits: &[(
            "src/channel/http.rs",
            "202 | 402) {\n        return answer.unclear();",
            "202 | 402) {\n        return Outcome::Settled(Settlement::Declined { code: DeclineCode::PaymentFailed, detail: String::new() });",
        )],
        scenario: "channel-fault-charge",
    },
    Defect {
        name: "money that comes too late is dropped",
        edits: &[(
            SETTLEMENT,
            ".status != PaymentStatus::Failed {",
            ".status != PaymentStatus::Processing {",
        )],
        scenario: "late-money-and-cancel",
    },
    Defect {
        name: "an event of the channel counts as dealt with before it is",
        edits: &[(
            "src/settlement/news.rs",
            "let changed = match event.news {",
            "channel_calls::keep_event(&self.database, name, &event.id, runtime::now()).await?;\n        let changed = match event.news {",
        )],
        scenario: "late-money-and-crash",
    },
    Defect {
        name: "a refund under way reserves nothing",
        edits: &[
            (
                "migrations/0004_channels.sql",
                "amount - refunded_amount - coalesce(",
                "amount - refunded_amount - 0 * coalesce(",
            ),
            (
                "src/domain/commands/refund_order.rs",
                "order.refunded_amount.saturating_add(refunding)",
                "order.refunded_amount.saturating_add(refunding.min(0))",
            ),
        ],
        scenario: "order-two-refunds-of-charge",
    },
    Defect {
        name: "a retry leaves a charge alone that belongs to nobody",
        edits: &[(
            SETTLEMENT,
            "if !horizon.is_over(call.lease_until) {",
            "if call.lease_until >= call.created_at {",
        )],
        scenario: "crash-charge",
    },
    Defect {
        name: "a settled payment leaves its client without an answer",
        edits: &[(
            "migrations/0004_channels.sql",
            "WHERE merchant_id = new.merchant_id AND response_status = 102",
            "WHERE merchant_id = new.merchant_id AND response_status = 103",
        )],
        scenario: "crash-charge",
    },
];

/// A copy of the repository to build defects in.
pub struct Workshop {
    tree: PathBuf,
}

impl Workshop {
    /// Makes the copy: the component's own files, and links to the rest.
    pub fn new() -> Result<Self, String> {
        let root = workspace::root();
        let tree = root.join("target/defects/tree");
        let failed = |error: std::io::Error| format!("{}: {error}", tree.display());
        if tree.exists() {
            fs::remove_dir_all(&tree).map_err(failed)?;
        }
        fs::create_dir_all(&tree).map_err(failed)?;
        for folder in ["src", "migrations"] {
            copy(&root.join(folder), &tree.join(folder)).map_err(failed)?;
        }
        for file in ["Cargo.toml", "Cargo.lock", "openapi.json"] {
            fs::copy(root.join(file), tree.join(file)).map_err(failed)?;
        }
        // The other members of the workspace, of which cargo reads the manifests.
        for member in ["host", "xtask", "benches", "tests"] {
            link(&root.join(member), &tree.join(member)).map_err(failed)?;
        }
        Ok(Self { tree })
    }

    /// Builds a component with a defect.
    pub fn build(&self, toolchain: &Toolchain, defect: &Defect) -> Result<PathBuf, String> {
        eprintln!("xtask: seeding the defect `{}`", defect.name);
        let mut files: Vec<&str> = defect.edits.iter().map(|(file, _, _)| *file).collect();
        files.dedup();
        for (file, text, replacement) in defect.edits {
            let path = self.tree.join(file);
            let source = read(&path)?;
            if source.matches(text).count() != 1 {
                let name = defect.name;
                return Err(format!(
                    "{file} does not have once what `{name}` changes: {text}"
                ));
            }
            write(&path, &source.replacen(text, replacement, 1))?;
        }
        let target = workspace::root().join("target/defects/build");
        let mut build = workspace::cargo("build");
        build
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &target);
        build.args([
            "--quiet",
            "--profile",
            PROFILE,
            "--lib",
            "--package",
            PAYONCE,
        ]);
        build.args(["--target", TARGET]);
        toolchain.configure(&mut build);
        let built = workspace::run(&mut build);
        for file in files {
            write(&self.tree.join(file), &read(&workspace::root().join(file))?)?;
        }
        built?;
        Ok(target.join(TARGET).join(PROFILE).join("payonce.wasm"))
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => drop(fs::copy(entry.path(), to)?),
        }
    }
    Ok(())
}

#[cfg(unix)]
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(from, to)
}

#[cfg(not(unix))]
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    copy(from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_defect_changes_text_that_is_there_once() {
        for defect in DEFECTS {
            assert!(!defect.edits.is_empty());
            for (file, text, replacement) in defect.edits {
                let source = read(&workspace::root().join(file)).unwrap();
                assert_eq!(source.matches(text).count(), 1, "{}: {text}", defect.name);
                assert_ne!(text, replacement);
            }
        }
    }
}
