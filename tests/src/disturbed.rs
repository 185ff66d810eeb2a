//! Experiments on a machine that others use too: it may stall by itself in the very seconds of one, and drop where nothing should.
//! Owns how often an experiment is made; what it must show is its own.

use anyhow::{Context, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// An experiment is made this often at most. One that fails for a reason of its own fails each time.
const TIMES: u32 = 3;
/// For queues, retries and incidents of the one before to end.
const BETWEEN: Duration = Duration::from_secs(5);

/// Makes an experiment, and again if it fails or panics.
pub fn experiment<T>(name: &str, mut make: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..TIMES {
        match catch_unwind(AssertUnwindSafe(&mut make)) {
            Ok(Ok(shown)) => return Ok(shown),
            Ok(Err(error)) => println!("{name} failed, once more: {error:#}"),
            // It printed what it said.
            Err(_) => println!("{name} failed, once more"),
        }
        std::thread::sleep(BETWEEN);
    }
    make().with_context(|| format!("{name}, {TIMES} times"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_works_is_made_once() {
        let mut made = 0;
        assert_eq!(
            experiment("it", || Ok({
                made += 1;
                7
            }))
            .unwrap(),
            7
        );
        assert_eq!(made, 1);
    }
}
