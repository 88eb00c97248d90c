//! The house keeps its floors: an import points to a lower floor or stays in its room, files stay short, and one file
//! reads the clock.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The rooms by floor, from the ground up, as the map in `src/lib.rs` has them. Rooms of one floor do not know each
/// other, but for the pairs in [`NEIGHBOURS`].
const FLOORS: [&[&str]; 8] = [
    &["clock", "error", "framing"],
    &["timeline", "dialect", "config"],
    &["route", "observation", "figures"],
    &["metrics", "access_log", "recent", "record", "net", "http1"],
    &["upstream", "upload"],
    &["exchange", "tap", "tunnel"],
    &["forward", "proxy", "server"],
    &["admin", "health", "sim", "app", "demo", "bench", "report", "cli", "main"],
];

/// Who may know whom on its own floor: the right one never knows the left one.
const NEIGHBOURS: [(&str, &str); 28] = [
    // Connections are sockets that speak.
    ("http1", "net"),
    // What a configuration says of a provider is a dialect.
    ("config", "dialect"),
    // The door to the sinks knows the sinks.
    ("record", "metrics"),
    ("record", "access_log"),
    ("record", "recent"),
    // They show the last records as the log writes them.
    ("recent", "access_log"),
    // A tap tells the exchange, a tunnel is what a tap becomes.
    ("tap", "exchange"),
    ("tunnel", "tap"),
    ("tunnel", "exchange"),
    // One connection hands its requests to the proxy, which keeps headers clean.
    ("server", "proxy"),
    ("proxy", "forward"),
    // The program puts the rest together.
    ("app", "admin"),
    ("demo", "app"),
    ("demo", "sim"),
    ("demo", "cli"),
    ("sim", "app"),
    ("sim", "cli"),
    ("bench", "app"),
    ("bench", "cli"),
    ("bench", "admin"),
    ("bench", "health"),
    ("report", "cli"),
    ("main", "app"),
    ("main", "bench"),
    ("main", "cli"),
    ("main", "demo"),
    ("main", "report"),
    ("main", "sim"),
];

const LONGEST: usize = 600;

#[test]
fn imports_only_look_down() {
    let mut climbs = Vec::new();
    for file in sources() {
        let room = room_of(&file.path);
        for other in file.mentions() {
            if !may_know(&room, &other) {
                climbs.push(format!("{} mentions crate::{other}", file.path.display()));
            }
        }
    }
    assert!(climbs.is_empty(), "{climbs:#?}");
}

#[test]
fn every_room_has_its_floor() {
    let there: BTreeSet<String> =
        sources().iter().map(|file| room_of(&file.path)).filter(|room| room != "lib").collect();
    let known: BTreeSet<String> = FLOORS.iter().flat_map(|floor| floor.iter()).map(|room| (*room).to_owned()).collect();
    let homeless: Vec<_> = there.difference(&known).collect();
    assert!(homeless.is_empty(), "rooms without a floor: {homeless:?}");
    for (left, right) in NEIGHBOURS {
        assert_eq!(floor_of(left), floor_of(right), "{left} and {right} are no neighbours");
        assert!(!NEIGHBOURS.contains(&(right, left)), "{left} and {right} know each other");
    }
}

#[test]
fn the_map_in_lib_rs_has_every_room_on_its_floor() {
    let lib = sources().into_iter().find(|file| file.path == Path::new("lib.rs")).expect("lib.rs");
    for (floor, rooms) in FLOORS.iter().enumerate() {
        let marker = format!("//! | {floor} ");
        let row = lib.text.lines().find(|line| line.starts_with(&marker)).expect("a row for each floor");
        let mapped: BTreeSet<String> = row.split("[`").skip(1).map(name).collect();
        let wanted: BTreeSet<String> =
            rooms.iter().filter(|room| **room != "main").map(|room| (*room).to_owned()).collect();
        assert_eq!(mapped, wanted, "floor {floor}");
    }
}

#[test]
fn files_can_be_read_in_one_go() {
    let long: Vec<_> = sources()
        .iter()
        .map(|file| (file.path.display().to_string(), file.text.lines().count()))
        .filter(|(_, lines)| *lines > LONGEST)
        .collect();
    assert!(long.is_empty(), "longer than {LONGEST} lines: {long:?}");
}

#[test]
fn only_the_clock_reads_time() {
    const READS: [&str; 5] = ["Instant::now(", "SystemTime::now(", ".elapsed()", "UNIX_EPOCH.elapsed", "Utc::now("];
    let mut readers = Vec::new();
    for file in sources() {
        // The simulated provider and the demo are the world outside the gauge: they keep their own time.
        let outside = ["clock", "sim", "demo"].contains(&room_of(&file.path).as_str());
        let reads = READS.iter().filter(|read| file.code().any(|line| line.contains(**read)));
        readers.extend(reads.filter(|_| !outside).map(|read| format!("{}: {read}", file.path.display())));
    }
    assert!(readers.is_empty(), "{readers:#?}");
}

#[test]
fn the_reader_of_imports_sees_them() {
    let file = Source {
        path: PathBuf::from("tap/request.rs"),
        text: "use crate::{\n    clock::{Clock, Stamp},\n    net,\n};\nuse crate::upload::Upload;\n\
               fn f() { crate::proxy::g(); }\n// crate::app is only mentioned\n\
               #[cfg(test)]\nmod tests {\n    use crate::server::Server;\n}\n"
            .to_owned(),
    };
    assert_eq!(file.mentions().into_iter().collect::<Vec<_>>(), ["clock", "net", "proxy", "upload"]);
    assert_eq!(room_of(&file.path), "tap");
    assert!(may_know("tap", "upload") && may_know("tap", "exchange") && may_know("tap", "tap"));
    assert!(!may_know("exchange", "tap") && !may_know("tap", "proxy"));
}

struct Source {
    /// Below `src`.
    path: PathBuf,
    text: String,
}

impl Source {
    /// The lines before the file's tests, without comments.
    fn code(&self) -> impl Iterator<Item = &str> {
        let tests = self.text.find("#[cfg(test)]\nmod tests {").unwrap_or(self.text.len());
        self.text[..tests].lines().map(|line| line.split("//").next().unwrap_or_default())
    }

    /// The rooms named behind `crate::`, alone or in braces.
    fn mentions(&self) -> BTreeSet<String> {
        let code: String = self.code().collect::<Vec<_>>().join("\n");
        let behind = code.split("crate::").skip(1);
        behind.flat_map(|rest| rest.strip_prefix('{').map_or_else(|| vec![name(rest)], names)).collect()
    }
}

/// The first names in a list in braces, whose opening one is behind us.
fn names(list: &str) -> Vec<String> {
    let (mut depth, mut found, mut at_start) = (0, Vec::new(), true);
    for (index, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_start = true,
            _ if at_start && letter.is_ascii_lowercase() => {
                found.push(name(&list[index..]));
                at_start = false;
            }
            _ => {}
        }
    }
    found
}

fn name(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect()
}

fn room_of(path: &Path) -> String {
    let first = path.iter().next().unwrap_or_default().to_string_lossy();
    first.strip_suffix(".rs").unwrap_or(&first).to_owned()
}

fn floor_of(room: &str) -> usize {
    FLOORS.iter().position(|floor| floor.contains(&room)).unwrap_or_else(|| panic!("{room} has no floor"))
}

fn may_know(room: &str, other: &str) -> bool {
    room == "lib" || room == other || floor_of(other) < floor_of(room) || NEIGHBOURS.contains(&(room, other))
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut found) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                let text = fs::read_to_string(&path).expect("text");
                let path = path.strip_prefix(&root).expect("below src").to_owned();
                found.push(Source { path, text });
            }
        }
    }
    assert!(found.len() > 30, "the sources are there");
    found
}
