//! A simulator of pipelines: stages of any number on workers of their own, blocks of nodes that
//! flow through them, and values that may be some iterations old.
//!
//! Block `j` enters a stage when its worker is free, `j` has left the stage before, and so have
//! the blocks that `j` gathers from; with staleness `s`, those may have done so `s` iterations
//! ago. An iteration begins when all blocks of the one `1 + s` before it have gone through: the
//! weights it reads are at most `s` updates old.

use lacis_core::{Error, Result};

/// The most tasks that are simulated.
pub const MOST: usize = 1 << 16;

/// One stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// What it does.
    pub name: String,
    /// Who does it.
    pub worker: usize,
    /// Seconds for one block.
    pub seconds: f64,
    /// Whether a block needs its neighbours' results of the stage before.
    pub gathers: bool,
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// From first to last.
    pub stages: Vec<Stage>,
    /// Blocks that each block gathers from, itself or not.
    pub needs: Vec<Vec<u32>>,
    /// How often all blocks go through.
    pub iterations: usize,
    /// How many iterations old values may be.
    pub staleness: usize,
}

/// A block in a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Which stage.
    pub stage: usize,
    /// Who.
    pub worker: usize,
    /// Which block.
    pub block: usize,
    /// Which iteration.
    pub iteration: usize,
    /// Seconds from the start.
    pub start: f64,
    /// Seconds from the start.
    pub end: f64,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// All that was done, by its start.
    pub spans: Vec<Span>,
    /// Workers.
    pub workers: usize,
    /// Seconds until the last one ended.
    pub seconds: f64,
    /// The share of all workers' time that nothing was done in.
    pub bubbles: f64,
    /// The most blocks that were inside at once: what memory must hold.
    pub in_flight: usize,
}

impl Pipeline {
    /// Runs it.
    ///
    /// # Errors
    /// When there are no stages or blocks, or too many of them.
    pub fn run(&self) -> Result<Schedule> {
        let tasks = self.stages.len() * self.needs.len() * self.iterations;
        if tasks == 0 || tasks > MOST {
            let problem = format!("{tasks} tasks; from 1 to {MOST} are simulated");
            return Err(Error::argument("pipeline", problem));
        }
        if let Some(block) = self.needs.iter().flatten().find(|&&b| b as usize >= self.needs.len())
        {
            return Err(Error::argument("pipeline", format!("there is no block {block}")));
        }
        let mut done = Done::new(self);
        while done.spans.len() < tasks {
            let next = done.next(self).ok_or_else(|| {
                Error::argument("pipeline", "stages wait for each other for ever")
            })?;
            done.add(self, next);
        }
        Ok(done.schedule())
    }
}

/// What has been scheduled so far.
struct Done {
    /// End of each task, by iteration, stage and block.
    ends: Vec<Option<f64>>,
    /// The next iteration and block of every stage: blocks go through in their order.
    heads: Vec<(usize, usize)>,
    /// When what each stage's next block waits for is there, if that is known.
    ready: Vec<Option<f64>>,
    /// When each worker is free.
    free: Vec<f64>,
    spans: Vec<Span>,
    blocks: usize,
    stages: usize,
}

impl Done {
    fn new(of: &Pipeline) -> Self {
        let (blocks, stages) = (of.needs.len(), of.stages.len());
        let workers = of.stages.iter().map(|stage| stage.worker + 1).max().unwrap_or(0);
        let mut done = Done {
            ends: vec![None; of.iterations * stages * blocks],
            heads: vec![(0, 0); stages],
            ready: vec![None; stages],
            free: vec![0.0; workers],
            spans: Vec::new(),
            blocks,
            stages,
        };
        done.ready[0] = done.waited(of, 0);
        done
    }

    fn end(&self, iteration: usize, stage: usize, block: usize) -> Option<f64> {
        self.ends[(iteration * self.stages + stage) * self.blocks + block]
    }

    /// When what a stage's next block waits for is there, if all of it is scheduled.
    fn waited(&self, of: &Pipeline, stage: usize) -> Option<f64> {
        let (iteration, block) = self.heads[stage];
        if iteration == of.iterations {
            return None;
        }
        let mut start = 0.0_f64;
        if stage == 0 {
            if let Some(before) = iteration.checked_sub(1 + of.staleness) {
                for other in 0..self.blocks {
                    start = start.max(self.end(before, self.stages - 1, other)?);
                }
            }
            return Some(start);
        }
        start = start.max(self.end(iteration, stage - 1, block)?);
        if of.stages[stage].gathers
            && let Some(seen) = iteration.checked_sub(of.staleness)
        {
            for &other in of.needs[block].iter().filter(|&&other| other as usize != block) {
                start = start.max(self.end(seen, stage - 1, other as usize)?);
            }
        }
        Some(start)
    }

    /// The stage that can start first; of several, the one that is nearest to the end.
    fn next(&self, of: &Pipeline) -> Option<(usize, f64)> {
        let ready = (0..self.stages).rev().filter_map(|stage| {
            let free = self.free[of.stages[stage].worker];
            Some((stage, self.ready[stage]?.max(free)))
        });
        ready.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn add(&mut self, of: &Pipeline, (stage, start): (usize, f64)) {
        let (iteration, block) = self.heads[stage];
        let Stage { worker, seconds, .. } = of.stages[stage];
        let end = start + seconds;
        self.spans.push(Span { stage, worker, block, iteration, start, end });
        self.ends[(iteration * self.stages + stage) * self.blocks + block] = Some(end);
        self.free[worker] = end;
        self.heads[stage] =
            if block + 1 == self.blocks { (iteration + 1, 0) } else { (iteration, block + 1) };
        // Nobody else waits for a block of this stage.
        let next = if stage + 1 == self.stages { 0 } else { stage + 1 };
        for stage in [stage, next] {
            self.ready[stage] = self.waited(of, stage);
        }
    }

    fn schedule(mut self) -> Schedule {
        let seconds = self.spans.iter().map(|span| span.end).fold(0.0, f64::max);
        let busy: f64 = self.spans.iter().map(|span| span.end - span.start).sum();
        let workers = self.free.len();
        let whole = seconds * workers as f64;
        let bubbles = if whole > 0.0 { 1.0 - busy / whole } else { 0.0 };
        let in_flight = most_at_once(&self.spans, self.stages);
        self.spans.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.stage.cmp(&b.stage)));
        Schedule { spans: self.spans, workers, seconds, bubbles, in_flight }
    }
}

/// The most blocks between the start of the first stage and the end of the last one.
fn most_at_once(spans: &[Span], stages: usize) -> usize {
    let mut moments: Vec<(f64, i64)> = Vec::new();
    for span in spans {
        if span.stage == 0 {
            moments.push((span.start, 1));
        }
        if span.stage + 1 == stages {
            moments.push((span.end, -1));
        }
    }
    // Who leaves at a moment makes room for who enters then.
    moments.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut inside = 0_i64;
    moments
        .iter()
        .map(|(_, change)| {
            inside += change;
            inside
        })
        .max()
        .unwrap_or(0)
        .max(0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(count: usize, gathers: bool) -> Vec<Stage> {
        let stage = |worker| Stage { name: format!("s{worker}"), worker, seconds: 1.0, gathers };
        (0..count).map(stage).collect()
    }

    fn alone(blocks: u32) -> Vec<Vec<u32>> {
        (0..blocks).map(|block| vec![block]).collect()
    }

    #[test]
    fn independent_blocks_have_the_textbook_bubbles() {
        let pipeline =
            Pipeline { stages: stages(4, true), needs: alone(8), iterations: 1, staleness: 0 };
        let schedule = pipeline.run().expect("small");
        assert_eq!(schedule.seconds, 11.0);
        assert!((schedule.bubbles - 3.0 / 11.0).abs() < 1e-12);
        assert_eq!(schedule.in_flight, 4);
    }

    #[test]
    fn blocks_that_need_all_others_do_not_overlap_unless_stale() {
        let all = vec![(0..6).collect::<Vec<u32>>(); 6];
        let mut pipeline =
            Pipeline { stages: stages(3, true), needs: all, iterations: 4, staleness: 0 };
        let synchronous = pipeline.run().expect("small");
        assert_eq!(synchronous.seconds, 4.0 * 3.0 * 6.0);
        assert_eq!(synchronous.in_flight, 6);
        pipeline.staleness = 1;
        let stale = pipeline.run().expect("small");
        assert!(stale.seconds < 0.6 * synchronous.seconds, "{}", stale.seconds);
        assert!(stale.bubbles < synchronous.bubbles);
    }

    #[test]
    fn a_band_keeps_few_blocks_inside() {
        let band: Vec<Vec<u32>> =
            (0..16_u32).map(|b| (b.saturating_sub(1)..(b + 2).min(16)).collect()).collect();
        let pipeline =
            Pipeline { stages: stages(3, true), needs: band, iterations: 1, staleness: 0 };
        let schedule = pipeline.run().expect("small");
        assert!(schedule.in_flight <= 5, "{}", schedule.in_flight);
        assert!(schedule.seconds < 24.0, "{}", schedule.seconds);
    }

    #[test]
    fn nobody_does_two_things_at_once_and_results_are_there_when_read() {
        let mut of = stages(4, true);
        of[3].worker = 0;
        let needs: Vec<Vec<u32>> = (0..5_u32).map(|b| vec![b, (b + 1) % 5]).collect();
        let pipeline = Pipeline { stages: of, needs, iterations: 3, staleness: 0 };
        let schedule = pipeline.run().expect("small");
        for (at, a) in schedule.spans.iter().enumerate() {
            for b in &schedule.spans[at + 1..] {
                assert!(a.worker != b.worker || a.end <= b.start || b.end <= a.start);
                let waits = b.iteration == a.iteration
                    && b.stage == a.stage + 1
                    && pipeline.needs[b.block].contains(&(a.block as u32));
                assert!(!waits || a.end <= b.start);
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let empty = Pipeline { stages: vec![], needs: alone(2), iterations: 1, staleness: 0 };
        assert!(empty.run().is_err());
        let missing =
            Pipeline { stages: stages(2, true), needs: vec![vec![7]], iterations: 1, staleness: 0 };
        assert!(missing.run().is_err());
    }
}
