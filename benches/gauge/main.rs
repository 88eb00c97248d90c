//! The benchmarks, one program with a command for each: linked as the program is shipped, which takes minutes, and so once.
//!
//! ```text
//! cargo bench -- COMMAND …    hot_path, exchange, bodies, dialects, stamps, scrape, held_streams
//! ```
//!
//! `benches/run` runs all of them and holds counts against their bounds.

#![expect(clippy::expect_used, clippy::print_stdout, reason = "a benchmark's own program")]

mod bodies;
mod dialects;
mod exchange;
mod held_streams;
mod hot_path;
mod scrape;
mod stamps;
mod words;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["hot_path", ref more @ ..] => hot_path::run(more),
        ["exchange", ref more @ ..] => exchange::run(more),
        ["bodies", ref more @ ..] => bodies::run(more),
        ["dialects", ref more @ ..] => dialects::run(more),
        ["stamps"] => stamps::run(),
        ["scrape"] => scrape::run(),
        ["held_streams"] => held_streams::run(None),
        ["held_streams", streams] => held_streams::run(Some(streams)),
        _ => println!(
            "cargo bench -- hot_path | exchange | bodies | dialects | stamps | scrape | held_streams [STREAMS]"
        ),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
