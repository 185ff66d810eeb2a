//! Experiments on a machine that others use too: it may stall by itself in the very seconds of one, and drop where nothing should.
//! Owns how often an experiment is made; what it must show is its own.

use anyhow::{Context, Result, bail};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// An experiment is made this often at most. One that fails for a reason of its own fails each time.
const TIMES: u32 = 3;
/// For queues, retries and incidents of the one before to end.
const BETWEEN: Duration = Duration::from_secs(5);

/// Makes an experiment, and again if it fails or panics.
pub fn experiment<T>(name: &str, mut make: impl FnMut() -> Result<T>) -> Result<T> {
    for time in 1..=TIMES {
        let failed = match catch_unwind(AssertUnwindSafe(&mut make)) {
            Ok(Ok(shown)) => return Ok(shown),
            Ok(Err(error)) => Some(error),
            // It printed what it said.
            Err(_) => None,
        };
        if time == TIMES {
            return match failed {
                Some(error) => Err(error).with_context(|| format!("{name}, {TIMES} times")),
                None => bail!("{name} failed {TIMES} times, see above"),
            };
        }
        println!("{name} failed, once more: {}", failed.map_or_else(String::new, |e| format!("{e:#}")));
        std::thread::sleep(BETWEEN);
    }
    unreachable!("the last time returns")
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
