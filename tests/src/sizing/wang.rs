//! What the algorithm of Wang, Zhang et al. would set ("Optimizing N-Tier Application Scalability in the Cloud: A Study of Soft Resource Allocation", TOMPECS 2019, Algorithm 1):
//! as many jobs as its critical server has at the smallest workload with the most throughput. Pure.

use serde::{Deserialize, Serialize};

/// Throughput that grew by no more than this part does not rise any more. The paper has no tolerance, and would go on as long as noise lets it.
const RISE_MIN: f64 = 0.02;

/// A step of the staircase: what so many users got who ask one request after the other, without a pause.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// How many.
    pub users: u32,
    /// Answers a second to all of them.
    pub per_second: f64,
}

/// minJobs, in total: response time times throughput at the last step that was worth it, by Little's law. Of users without a pause that is their
/// number, with the time before and behind the critical server in it: an upper bound. Steps ascend. `None` without an answer.
#[must_use]
pub fn min_jobs(steps: &[Step]) -> Option<u32> {
    let mut best: Option<&Step> = None;
    for step in steps {
        if best.is_some_and(|best| step.per_second <= best.per_second * (1.0 + RISE_MIN)) {
            break;
        }
        best = Some(step);
    }
    best.filter(|step| step.per_second > 0.0).map(|step| step.users)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_last_step_that_was_worth_it() {
        let of = |all: &[(u32, f64)]| {
            let steps: Vec<Step> = all
                .iter()
                .map(|(users, per_second)| Step { users: *users, per_second: *per_second })
                .collect();
            min_jobs(&steps)
        };
        assert_eq!(
            of(&[(1, 100.0), (2, 190.0), (4, 300.0), (8, 305.0), (16, 320.0)]),
            Some(4),
            "as it stops there"
        );
        assert_eq!(of(&[(1, 100.0), (2, 190.0), (4, 180.0)]), Some(2));
        assert_eq!(of(&[(1, 100.0), (2, 200.0)]), Some(2), "it rose to the end");
        assert_eq!((of(&[]), of(&[(1, 0.0), (2, 0.0)])), (None, None));
    }
}
