//! `payonce-channel`: the channel as a program, scripted by `curl`.

use std::process::ExitCode;

use payonce_channel::{Channel, Config};

const USAGE: &str = "\
Usage: payonce-channel [--listen ADDRESS] [--key KEY] [--secret SECRET] [--payonce URL]

  --listen ADDRESS  where to listen (127.0.0.1:8400)
  --key KEY         what payonce has to know as channel_key (channel-key)
  --secret SECRET   what payonce has to know as webhook_secret
                    (whsec_Y2hhbm5lbC13ZWJob29rLXNlY3JldC1kZW1v)
  --payonce URL     sends webhooks there, by itself
  --manual          sends them when told to only, see docs/channels.md
";

struct Options {
    listen: String,
    payonce: Option<String>,
    config: Config,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        listen: "127.0.0.1:8400".into(),
        payonce: None,
        config: Config {
            key: "channel-key".into(),
            webhook_secret: "whsec_Y2hhbm5lbC13ZWJob29rLXNlY3JldC1kZW1v".into(),
            webhooks_by_themselves: true,
        },
    };
    while let Some(flag) = words.next() {
        if flag == "--manual" {
            options.config.webhooks_by_themselves = false;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{flag} takes a value"));
        match flag.as_str() {
            "--listen" => options.listen = value?,
            "--key" => options.config.key = value?,
            "--secret" => options.config.webhook_secret = value?,
            "--payonce" => options.payonce = Some(value?),
            _ => return Err(format!("there is no option {flag}")),
        }
    }
    Ok(options)
}

/// What starts payonce with this channel.
fn command(url: &str, config: &Config) -> String {
    let variables = [
        ("channel", "http"),
        ("channel_url", url),
        ("channel_host", url),
        ("channel_key", &config.key),
        ("webhook_secret", &config.webhook_secret),
    ];
    let flags = variables.map(|(name, value)| format!(" \\\n  --variable {name}={value}"));
    format!("cargo xtask up{}", flags.concat())
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(reason) => {
            eprint!("payonce-channel: {reason}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let config = options.config;
    match Channel::start(&options.listen, config.clone()) {
        Ok(channel) => {
            if let Some(payonce) = options.payonce {
                channel.webhooks_to(&payonce);
            }
            println!("Serving {}", channel.url());
            println!("\n{}", command(&channel.url(), &config));
            loop {
                std::thread::park();
            }
        }
        Err(error) => {
            eprintln!("payonce-channel: {}: {error}", options.listen);
            ExitCode::FAILURE
        }
    }
}
