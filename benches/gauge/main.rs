//! The benchmarks, one program with a command for each: linked as the program is shipped, which takes minutes, and so once.
//!
//! ```text
//! cargo run --release --example gauge -- COMMAND …    hot_path, exchange, bodies, dialects, stamps, scrape
//! ```
//!
//! `benches/run` runs all of them and holds counts against their bounds.

#![expect(clippy::expect_used, clippy::print_stdout, reason = "a benchmark's own program")]

mod bodies;
mod dialects;
mod exchange;
mod hot_path;
mod scrape;
mod stamps;
mod words;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["hot_path", ref more @ ..] => hot_path::run(more),
        ["exchange", ref more @ ..] => exchange::run(more),
        ["bodies", ref more @ ..] => bodies::run(more),
        ["dialects", ref more @ ..] => dialects::run(more),
        ["stamps"] => stamps::run(),
        ["scrape"] => scrape::run(),
        _ => {
            println!(
                "cargo run --release --example gauge -- hot_path | exchange | bodies | dialects | stamps | scrape"
            );
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
