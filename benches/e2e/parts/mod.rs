//! The parts on both sides of a proxy. One thread and one epoll each, for they share the machine with what is measured.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    reason = "numbers far from their bounds, in a benchmark's own program"
)]

mod answer;
mod http2;
mod http2_load;
mod http2_provider;
mod link;
mod load;
mod provider;
mod system;
mod tally;
mod wire;

use std::{error::Error, fs, path::PathBuf};

use clap::Parser;

#[derive(Parser)]
enum Command {
    /// Answers as a provider would
    Provider {
        #[arg(long)]
        port: u16,
    },
    /// Sends requests and measures the answers
    Load(load::Options),
    /// Makes a certificate for 127.0.0.1
    Certificate { folder: PathBuf },
}

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    system::exact_timers()?;
    match Command::parse() {
        Command::Provider { port } => provider::run(port)?,
        Command::Load(options) => println!("{}", load::run(options)?),
        Command::Certificate { folder } => {
            let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
            let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
            fs::write(folder.join("cert.pem"), &certificate)?;
            fs::write(folder.join("key.pem"), &key)?;
            fs::write(folder.join("both.pem"), certificate + &key)?;
        }
    }
    Ok(())
}
