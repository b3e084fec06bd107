//! Classifies rows of four numbers: `tec-net ./classifier.so 1 2 3 4 4 3 2 1`.

use tec_net::{Error, Library, Tensor};

fn classify(path: &str, numbers: &[f32]) -> Result<(), Error> {
    // SAFETY: the caller names a library that tec wrote.
    let mut net = unsafe { Library::open(path) }?.net()?;
    let rows = numbers.len() as i64 / 4;
    let results = net.run(&[Tensor::new(numbers, &[rows, 4])])?;
    let y = results.get(0)?;
    for row in y.data::<f32>()?.chunks(y.shape()[1] as usize) {
        println!("{}", row.iter().map(|p| format!("{p:.6}")).collect::<Vec<_>>().join(" "));
    }
    Ok(())
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Result<Vec<f32>, _> = words.iter().skip(1).map(|w| w.parse()).collect();
    let (Some(path), Ok(numbers)) = (words.first(), numbers) else {
        eprintln!("usage: tec-net LIBRARY NUMBER...");
        std::process::exit(2);
    };
    if let Err(e) = classify(path, &numbers) {
        eprintln!("{e}");
        std::process::exit(1);
    }
}
