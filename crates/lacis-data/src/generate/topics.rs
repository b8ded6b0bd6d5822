//! Features that tell something of a node's class, and less the more noise there is.
//!
//! Sparse features are words: a share `noise` of a node's words come from one common vocabulary,
//! the others from its class's own part of it. Dense features are
//! `(1 - noise) · class mean + noise · normal`.

use lacis_core::threads::ranges;
use lacis_core::{Coo, Csr, Extent, Features, Repeats, Result, Rng, Stream, Tags};

use super::draw::dense_by_rows;
use super::sbm::Blocks;
use super::scramble::Scramble;
use crate::Job;

/// What the features of a node have to do with its class.
#[derive(Clone, Debug)]
pub(crate) struct Topics {
    pub(crate) width: usize,
    /// Ones of a node on average; 0: dense features.
    pub(crate) ones: usize,
    pub(crate) noise: f64,
}

/// Nodes whose features one thread makes at a time.
const CHUNK_NODES: usize = 1 << 12;

impl Topics {
    pub(super) fn features(
        &self,
        class_of: &[i32],
        blocks: &Blocks,
        job: &Job,
    ) -> Result<Features> {
        if self.ones > 0 {
            self.words(class_of, blocks, job).map(Features::Sparse)
        } else {
            self.normal(class_of, blocks, job)
        }
    }

    fn words(&self, class_of: &[i32], blocks: &Blocks, job: &Job) -> Result<Csr> {
        let n = class_of.len();
        let vocabulary = Vocabulary::new(self, blocks);
        let rng = Rng::new(blocks.seed, "sbm words");
        let mut coo = Coo::new(Tags::Absent);
        coo.extend(ranges(n, CHUNK_NODES), job.threads, |nodes, chunk| {
            job.tick(nodes.start as u64, Some(n as u64))?;
            for i in nodes {
                let mut stream = rng.stream(i as u64);
                for word in vocabulary.text(class_of[i] as usize, &mut stream) {
                    chunk.push(i as u32, word);
                }
            }
            Ok(())
        })?;
        let extent = Extent { n_rows: Some(n), n_cols: Some(self.width) };
        coo.into_csr(extent, Repeats::Merge, job.threads)
    }

    fn normal(&self, class_of: &[i32], blocks: &Blocks, job: &Job) -> Result<Features> {
        let (width, noise) = (self.width, self.noise as f32);
        let means = Rng::new(blocks.seed, "sbm means");
        let rng = Rng::new(blocks.seed, "sbm features");
        let normals = |mut stream: Stream| move || stream.normal() as f32;
        let mean = |class| {
            (0..width).map({
                let mut normal = normals(means.stream(class as u64));
                move |_| normal()
            })
        };
        let means: Vec<Vec<f32>> =
            (0..blocks.sizes.len()).map(|class| mean(class).collect()).collect();
        let shape = [class_of.len(), width];
        let x = dense_by_rows(shape, job, |first, values| {
            for (i, row) in (first..).zip(values.chunks_mut(width)) {
                let mut normal = normals(rng.stream(i as u64));
                let mean = &means[class_of[i] as usize];
                for (value, mean) in row.iter_mut().zip(mean) {
                    *value = (1.0 - noise) * mean + noise * normal();
                }
            }
        })?;
        Ok(Features::Dense(x))
    }
}

/// Words by how often they are used: the common ones, and the ones of each class.
struct Vocabulary<'a> {
    topics: &'a Topics,
    classes: usize,
    common: Scramble,
    special: Scramble,
}

impl<'a> Vocabulary<'a> {
    fn new(topics: &'a Topics, blocks: &Blocks) -> Self {
        let scramble = |purpose| Scramble::new(Rng::new(blocks.seed, purpose), topics.width as u64);
        Vocabulary {
            topics,
            classes: blocks.sizes.len(),
            common: scramble("sbm common words"),
            special: scramble("sbm special words"),
        }
    }

    /// The distinct words of a node of this class, ascending.
    fn text(&self, class: usize, stream: &mut Stream) -> Vec<u32> {
        let ones = self.topics.ones;
        let length = ones - ones / 2 + stream.below(2 * (ones / 2) + 1);
        let mut words = Vec::with_capacity(length);
        for _ in 0..8 * length {
            if words.len() == length.min(self.topics.width) {
                break;
            }
            let word = self.word(class, stream);
            if let Err(at) = words.binary_search(&word) {
                words.insert(at, word);
            }
        }
        words
    }

    fn word(&self, class: usize, stream: &mut Stream) -> u32 {
        let width = self.topics.width;
        let rank = |among: usize, unit: f64| (among as f64 * unit * unit) as usize;
        if stream.unit() < self.topics.noise {
            return self.common.at(rank(width, stream.unit()) as u64) as u32;
        }
        let [start, end] = [class, class + 1].map(|c| c * width / self.classes);
        let own = start + rank((end - start).max(1), stream.unit());
        self.special.at(own as u64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::tests::made;
    use lacis_core::{Dataset, Labels};

    fn classes(set: &Dataset) -> Vec<i32> {
        match set.labels() {
            Some(Labels::Classes { of, .. }) => of.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn words_are_as_many_as_asked_and_tell_the_class_without_noise() {
        let set = made("sbm:n=2k,e=4k,features=700,ones=18,noise=0,classes=7");
        let Some(Features::Sparse(x)) = set.features() else { panic!("sparse") };
        let mean = x.nnz() as f64 / 2000.0;
        assert!((17.0..=18.5).contains(&mean), "{mean}");
        let class = classes(&set);
        let mut class_of_word = vec![-1; 700];
        for (i, j, _) in x.entries() {
            let known = std::mem::replace(&mut class_of_word[j], class[i]);
            assert!(known == -1 || known == class[i]);
        }
    }

    #[test]
    fn dense_features_are_the_class_mean_without_noise() {
        let set = made("sbm:n=300,e=600,features=4,noise=0,classes=3");
        let Some(Features::Dense(x)) = set.features() else { panic!("dense") };
        let class = classes(&set);
        let first = |c| class.iter().position(|&of| of == c).unwrap();
        assert!((0..300).all(|i| x.row(i) == x.row(first(class[i]))));
        assert_ne!(x.row(first(0)), x.row(first(1)));
    }
}
