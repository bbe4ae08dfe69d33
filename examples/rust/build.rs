//! Links libsilo into the program. If SILO_LIBRARY_DIR is set, links the libsilo.a in that folder; otherwise compiles
//! libsilo from its sources with the system's C compiler.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    for name in ["SILO_LIBRARY_DIR", "SILO_SOURCES", "CC"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap());
    let sources = match env::var("SILO_SOURCES") {
        Ok(folder) => PathBuf::from(folder),
        Err(_) => manifest.join("../../native/core"),
    };
    let output = PathBuf::from(env::var("OUT_DIR").unwrap());
    println!("cargo:rerun-if-changed={}", sources.display());
    println!("cargo:rerun-if-changed=layout.c");

    // Compiled only as a check: it fails if a size or an offset in ffi.rs differs from silo.h.
    compile(&[manifest.join("layout.c")], &sources, &output);

    let library = match env::var("SILO_LIBRARY_DIR") {
        Ok(folder) => PathBuf::from(folder),
        Err(_) => {
            build(&sources, &output);
            output.clone()
        }
    };
    println!("cargo:rustc-link-search=native={}", library.display());
    println!("cargo:rustc-link-lib=static=silo");
    println!("cargo:rustc-link-lib=dylib=dl");
    println!("cargo:rustc-link-lib=dylib=m");
    println!("cargo:rustc-link-lib=dylib=pthread");
}

/// Compiles every source of libsilo and packs the objects into `output/libsilo.a`.
fn build(sources: &Path, output: &Path) {
    let mut files: Vec<PathBuf> = fs::read_dir(sources)
        .unwrap_or_else(|error| {
            panic!(
                "{}: {error}; set SILO_SOURCES to the folder native/core of Silo",
                sources.display()
            )
        })
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|name| name == "c"))
        .collect();
    files.sort();
    let objects = compile(&files, sources, output);
    let archive = output.join("libsilo.a");
    let _ = fs::remove_file(&archive); // because ar keeps objects that an existing archive has
    run(Command::new("ar").arg("rcs").arg(&archive).args(&objects));
}

fn compile(files: &[PathBuf], include: &Path, output: &Path) -> Vec<PathBuf> {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    run(Command::new(&compiler)
        .current_dir(output)
        // Contraction off: a fused multiply-add could change the last bit of a grid or constant from Python's result.
        .args([
            "-std=c11",
            "-O2",
            "-fPIC",
            "-fvisibility=hidden",
            "-ffp-contract=off",
            "-D_GNU_SOURCE=1",
            "-c",
        ])
        .arg("-I")
        .arg(include)
        .args(files));
    files
        .iter()
        .map(|file| output.join(file.with_extension("o").file_name().unwrap()))
        .collect()
}

fn run(command: &mut Command) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?}: {status}"),
        Err(error) => panic!("{command:?}: {error}"),
    }
}
