//! The command line's front door; everything behind it is in the library.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use streamgauge::{
    app, bench,
    cli::{self, Command, RunArgs},
    config::{Config, ConfigError},
    demo, health, report, sim,
};

fn main() -> ExitCode {
    let command = match cli::parse() {
        Ok(command) => command,
        Err(error) => {
            let _ = error.print();
            return if error.exit_code() == 0 { ExitCode::SUCCESS } else { ExitCode::from(ConfigError::EXIT_CODE) };
        }
    };
    let done = match command {
        Command::Run(arguments) => with_config(&arguments, app::main),
        Command::Check(arguments) => with_config(&arguments, |config| print(&config.effective_toml())),
        Command::Version => print(concat!("streamgauge ", env!("CARGO_PKG_VERSION"), "\n")),
        Command::Bench(arguments) => bench::main(&arguments),
        Command::Report(arguments) => report::main(&arguments),
        Command::Demo(arguments) => demo::main(&arguments),
        Command::Health(arguments) => health::ask(arguments.admin).map(|()| ExitCode::SUCCESS),
        Command::Sim(arguments) => sim::main(&arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("streamgauge: {error}");
        ExitCode::FAILURE
    })
}

fn with_config(arguments: &RunArgs, run: impl FnOnce(&Config) -> io::Result<ExitCode>) -> io::Result<ExitCode> {
    match arguments.config() {
        Ok(config) => run(&config),
        Err(error) => {
            eprintln!("streamgauge: {error}");
            Ok(ExitCode::from(ConfigError::EXIT_CODE))
        }
    }
}

fn print(text: &str) -> io::Result<ExitCode> {
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads it has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        written => written.map(|()| ExitCode::SUCCESS),
    }
}
