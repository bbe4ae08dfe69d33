//! Opens a bundle and runs its kernel `add` from several threads.
//!
//!     silo-kernels kernels.silo IDENTITY
//!
//! IDENTITY is the sha256 of the bundle that `silo inspect kernels.silo` prints. It covers every byte of the file, so
//! that native code of another file is refused. Your own program would contain it as a constant.

use std::env;
use std::process::ExitCode;
use std::thread;

use silo_kernels::{version, Argument, Bundle, Kernel, Queue, Result};

/// Computes out = x + y. Safe to call: the function checks that the lengths are equal, and Rust's mutable borrow of
/// `out` ensures that it overlaps neither `x` nor `y`.
fn add(kernel: &Kernel<'_>, x: &[f32], y: &[f32], out: &mut [f32]) -> Result<()> {
    assert!(
        x.len() == out.len() && y.len() == out.len(),
        "arrays of different lengths"
    );
    let count = Argument::int(out.len() as i64);
    unsafe {
        kernel.launch(
            Queue::cpu(),
            &[Argument::reads(x), Argument::reads(y), Argument::writes(out), count],
        )
    }
}

fn run(path: &str, identity: String) -> Result<()> {
    let bundle = Bundle::open(path, move |code| code.identity == identity)?;
    println!("libsilo {}, kernels: {}", version(), bundle.names().join(", "));
    let kernel = bundle.kernel("add")?;
    thread::scope(|scope| {
        let threads: Vec<_> = (1..=4)
            .map(|number| {
                scope.spawn(move || -> Result<()> {
                    let count = number * 100_003;
                    let x: Vec<f32> = (0..count).map(|i| i as f32).collect();
                    let y = vec![number as f32; count];
                    let mut out = vec![0.0; count];
                    add(&kernel, &x, &y, &mut out)?;
                    assert!(out
                        .iter()
                        .enumerate()
                        .all(|(i, &made)| made == i as f32 + number as f32));
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|one| one.join().expect("a thread"))
    })?;
    println!("add from four threads: right");

    // A call that no variant serves returns an error with the reason, and launches nothing.
    let wrong = [0i8; 64];
    let mut out = [0i8; 64];
    let arguments = [
        Argument::reads(&wrong),
        Argument::reads(&wrong),
        Argument::writes(&mut out),
        Argument::int(64),
    ];
    match unsafe { kernel.launch(Queue::cpu(), &arguments) } {
        Ok(()) => panic!("int8 was taken"),
        Err(error) => println!("int8 instead: {}", error.name),
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    let [_, path, identity] = arguments.as_slice() else {
        eprintln!("usage: silo-kernels kernels.silo IDENTITY");
        return ExitCode::from(2);
    };
    match run(path, identity.clone()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
