//! Which items train, which choose, which judge: functions from labels and a seed to [`Split`]s.
//!
//! Items without a label are in no part. Parts are ascending, and the same seed gives the same
//! split. Edges are split by [`links`], in the module [`link`]; a user's own split is read by
//! [`file`](mod@file).

pub mod file;
pub mod link;

use lacis_core::{Error, Labels, Result, Rng, Stream};

pub use lacis_core::Split;
pub use link::{Direction, LinkPlan, LinkSplit, links};

/// Shares of the items for the three parts; what is left over is in none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fractions {
    train: f64,
    val: f64,
    test: f64,
}

impl Fractions {
    /// 60, 20 and 20 percent.
    pub const DEFAULT: Fractions = Fractions { train: 0.6, val: 0.2, test: 0.2 };

    /// Checks the shares.
    ///
    /// # Errors
    /// When one is outside 0..=1, their sum is more than 1, or nothing would train.
    pub fn new(train: f64, val: f64, test: f64) -> Result<Self> {
        let all = [train, val, test];
        let what = || format!("split {train}/{val}/{test}");
        if !all.iter().all(|share| (0.0..=1.0).contains(share)) {
            return Err(Error::argument(what(), "every share must be in 0..=1"));
        }
        if all.iter().sum::<f64>() > 1.0 + 1e-9 {
            return Err(Error::argument(what(), "the shares are more than 1 together"));
        }
        if train == 0.0 {
            return Err(Error::argument(what(), "some items must train"));
        }
        Ok(Fractions { train, val, test })
    }

    /// Where the parts of `n` items end.
    fn ends(self, n: usize) -> [usize; 3] {
        let shares = [self.train, self.train + self.val, self.train + self.val + self.test];
        shares.map(|share| ((share * n as f64).round() as usize).min(n))
    }

    /// Hands out shuffled items.
    fn deal(self, items: &[u32], split: &mut Split) {
        let [train, val, test] = self.ends(items.len());
        split.train.extend(&items[..train]);
        split.val.extend(&items[train..val]);
        split.test.extend(&items[val..test]);
    }
}

/// The items that have a label, ascending.
pub fn known(labels: &Labels) -> Vec<u32> {
    let items = 0..labels.n_rows();
    items.filter(|&i| labels.is_known(i)).map(|i| i as u32).collect()
}

/// Every labelled item at random into one part.
///
/// # Errors
/// When nothing would train, because too few items have a label.
pub fn random(labels: &Labels, fractions: Fractions, seed: u64) -> Result<Split> {
    let mut items = known(labels);
    shuffler(seed).shuffle(&mut items);
    let mut split = named("random");
    fractions.deal(&items, &mut split);
    finished(split)
}

/// As [`random`], with the shares of each class.
///
/// # Errors
/// When the labels are not classes, or nothing would train.
pub fn stratified(labels: &Labels, fractions: Fractions, seed: u64) -> Result<Split> {
    let mut split = named("stratified");
    for items in shuffled_classes(labels, seed)? {
        fractions.deal(&items, &mut split);
    }
    finished(split)
}

/// How many items a part gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// So many, whatever their class.
    Count(usize),
    /// So many of each class.
    PerClass(usize),
    /// All that are left.
    Rest,
}

/// The sizes of a Planetoid-like split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planetoid {
    /// Items of each class that train.
    pub train_per_class: usize,
    /// Items that choose.
    pub val: Part,
    /// Items that judge, of those then left.
    pub test: Part,
}

impl Planetoid {
    /// 20 a class, 500, 1,000 (Yang et al. 2016).
    pub const CANONICAL: Planetoid =
        Planetoid { train_per_class: 20, val: Part::Count(500), test: Part::Count(1000) };
    /// 20 and 30 a class, and the rest (Shchur et al. 2018).
    pub const PITFALLS: Planetoid =
        Planetoid { train_per_class: 20, val: Part::PerClass(30), test: Part::Rest };
}

/// A fixed number of training items for each class.
///
/// # Errors
/// When the labels are not classes, or a class or the whole has too few items.
pub fn planetoid(labels: &Labels, sizes: Planetoid, seed: u64) -> Result<Split> {
    let mut classes = shuffled_classes(labels, seed)?;
    let mut stream = Rng::new(seed, "split rest").stream(0);
    let mut take = |part, name| take(&mut classes, part, name, &mut stream);
    let split = Split {
        train: take(Part::PerClass(sizes.train_per_class), "train")?,
        val: take(sizes.val, "val")?,
        test: take(sizes.test, "test")?,
        ..named("planetoid")
    };
    finished(split)
}

/// Takes a part's items from the ends of the classes.
fn take(classes: &mut [Vec<u32>], part: Part, name: &str, stream: &mut Stream) -> Result<Vec<u32>> {
    let left: usize = classes.iter().map(Vec::len).sum();
    let lacking = |wanted: usize, of: String, left: usize| {
        let problem = format!("{wanted} {name} items{of} are wanted, but only {left} are left");
        Err(Error::argument("split 'planetoid'", problem))
    };
    match part {
        Part::Rest => Ok(classes.iter_mut().flat_map(std::mem::take).collect()),
        Part::PerClass(wanted) => {
            let mut taken = Vec::new();
            for (c, class) in classes.iter_mut().enumerate() {
                if class.len() < wanted {
                    return lacking(wanted, format!(" of class {c}"), class.len());
                }
                taken.extend(class.drain(class.len() - wanted..));
            }
            Ok(taken)
        }
        Part::Count(wanted) if wanted > left => lacking(wanted, String::new(), left),
        Part::Count(wanted) => {
            let mut pool: Vec<u32> = classes.iter().flatten().copied().collect();
            pool.sort_unstable();
            stream.shuffle(&mut pool);
            pool.truncate(wanted);
            pool.sort_unstable();
            for class in classes {
                class.retain(|item| pool.binary_search(item).is_err());
            }
            Ok(pool)
        }
    }
}

/// Every labelled item trains, nothing chooses, nothing judges.
///
/// # Errors
/// When no item has a label.
pub fn all(labels: &Labels) -> Result<Split> {
    finished(Split { train: known(labels), ..named("all") })
}

/// Which fold chooses the best epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoldVal {
    /// None does: all folds but the judging one train.
    None,
    /// The one after the judging one.
    Next,
}

/// Cross-validation: how many folds, and which of them chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folds {
    /// Number of folds, and of splits.
    pub count: usize,
    /// The validation part of each split.
    pub val: FoldVal,
}

/// One split per fold, which judges; folds differ by at most one item.
///
/// # Errors
/// When there are fewer than two folds, or fewer items than folds.
pub fn k_fold(labels: &Labels, folds: Folds, seed: u64) -> Result<Vec<Split>> {
    let mut items = known(labels);
    shuffler(seed).shuffle(&mut items);
    fold_splits(&items, folds, "fold")
}

/// As [`k_fold`]; each class, too, is spread evenly.
///
/// # Errors
/// As [`k_fold`], and when the labels are not classes.
pub fn stratified_k_fold(labels: &Labels, folds: Folds, seed: u64) -> Result<Vec<Split>> {
    let items: Vec<u32> = shuffled_classes(labels, seed)?.into_iter().flatten().collect();
    fold_splits(&items, folds, "stratified-fold")
}

/// Deals the items to the folds in turn.
fn fold_splits(items: &[u32], folds: Folds, name: &str) -> Result<Vec<Split>> {
    let Folds { count, val } = folds;
    let least = if val == FoldVal::Next { 3 } else { 2 };
    if count < least {
        let problem =
            format!("{count} folds leave nothing to train on; {least} or more would be right");
        return Err(Error::argument("k-fold", problem));
    }
    if items.len() < count {
        let problem = format!("{} labelled items do not fill {count} folds", items.len());
        return Err(Error::argument("k-fold", problem));
    }
    let split = |fold: usize| {
        let mut split = named(&format!("{name}-{fold}"));
        for (at, &item) in items.iter().enumerate() {
            let part = match (at + count - fold) % count {
                0 => &mut split.test,
                1 if val == FoldVal::Next => &mut split.val,
                _ => &mut split.train,
            };
            part.push(item);
        }
        finished(split)
    };
    (0..count).map(split).collect()
}

/// The labelled items of each class, shuffled.
fn shuffled_classes(labels: &Labels, seed: u64) -> Result<Vec<Vec<u32>>> {
    let Labels::Classes { of, count, .. } = labels else {
        let problem = "needs one class per item, which these labels are not";
        return Err(Error::argument("split by class", problem));
    };
    let mut classes = vec![Vec::new(); *count];
    for (item, &class) in of.iter().enumerate().filter(|(_, class)| **class >= 0) {
        classes[class as usize].push(item as u32);
    }
    let rng = Rng::new(seed, "split classes");
    for (class, items) in classes.iter_mut().enumerate() {
        rng.stream(class as u64).shuffle(items);
    }
    Ok(classes)
}

fn shuffler(seed: u64) -> Stream {
    Rng::new(seed, "split").stream(0)
}

fn named(name: &str) -> Split {
    Split { name: name.to_owned(), ..Split::default() }
}

/// The split with its parts ascending, if something trains.
fn finished(mut split: Split) -> Result<Split> {
    if split.train.is_empty() {
        let problem = "too few items have a label: none is left to train on";
        return Err(Error::argument(format!("split '{}'", split.name), problem));
    }
    for part in [&mut split.train, &mut split.val, &mut split.test] {
        part.sort_unstable();
    }
    Ok(split)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// 300 items of classes 0, 1, 2 in shares 3 : 2 : 1, every tenth of them unlabelled.
    fn labels() -> Labels {
        let class = |i: i32| {
            if i % 10 == 9 { -1 } else { [0, 0, 0, 1, 1, 2][i as usize % 6] }
        };
        Labels::classes((0..300).map(class).collect::<Vec<_>>(), vec![]).unwrap()
    }

    fn class(item: u32) -> usize {
        [0, 0, 0, 1, 1, 2][item as usize % 6]
    }

    fn sizes(split: &Split) -> [usize; 3] {
        [&split.train, &split.val, &split.test].map(Vec::len)
    }

    fn check(split: &Split) -> HashSet<u32> {
        let parts = [&split.train, &split.val, &split.test];
        let all: Vec<u32> = parts.into_iter().flatten().copied().collect();
        let distinct: HashSet<u32> = all.iter().copied().collect();
        assert_eq!(all.len(), distinct.len(), "parts overlap");
        assert!(all.iter().all(|i| i % 10 != 9), "an unlabelled item is in a part");
        assert!(parts.iter().all(|part| part.is_sorted()));
        distinct
    }

    fn per_class(part: &[u32]) -> [usize; 3] {
        [0, 1, 2].map(|c| part.iter().filter(|&&item| class(item) == c).count())
    }

    #[test]
    fn random_splits_have_their_shares_and_follow_the_seed() {
        let split = random(&labels(), Fractions::DEFAULT, 1).unwrap();
        assert_eq!(sizes(&split), [162, 54, 54]);
        assert_eq!(check(&split).len(), 270);
        assert_eq!(split, random(&labels(), Fractions::DEFAULT, 1).unwrap());
        assert_ne!(split, random(&labels(), Fractions::DEFAULT, 2).unwrap());
        let some = random(&labels(), Fractions::new(0.1, 0.0, 0.2).unwrap(), 1).unwrap();
        assert_eq!(sizes(&some), [27, 0, 54]);
    }

    #[test]
    fn stratified_splits_have_their_shares_of_each_class() {
        let split = stratified(&labels(), Fractions::new(0.5, 0.25, 0.25).unwrap(), 3).unwrap();
        check(&split);
        let [a, b, c] = per_class(&split.train);
        let total = per_class(&known(&labels()));
        for (train, total) in [a, b, c].into_iter().zip(total) {
            assert!(train.abs_diff(total / 2) <= 1);
        }
    }

    #[test]
    fn planetoid_splits_have_their_counts() {
        let wanted =
            Planetoid { train_per_class: 10, val: Part::Count(50), test: Part::Count(100) };
        let split = planetoid(&labels(), wanted, 4).unwrap();
        check(&split);
        assert_eq!(sizes(&split), [30, 50, 100]);
        assert_eq!(per_class(&split.train), [10; 3]);
        let pitfalls = Planetoid { train_per_class: 10, val: Part::PerClass(5), test: Part::Rest };
        let split = planetoid(&labels(), pitfalls, 4).unwrap();
        assert_eq!((check(&split).len(), sizes(&split)), (270, [30, 15, 225]));
        assert_eq!(per_class(&split.val), [5; 3]);
        let error =
            planetoid(&labels(), Planetoid { train_per_class: 46, ..wanted }, 4).unwrap_err();
        assert!(
            error.to_string().contains("46 train items of class 2 are wanted, but only 40"),
            "{error}"
        );
        let error = planetoid(&labels(), Planetoid::CANONICAL, 4).unwrap_err();
        assert!(error.to_string().contains("500 val items are wanted, but only 210"), "{error}");
    }

    #[test]
    fn all_takes_every_label() {
        assert_eq!(check(&all(&labels()).unwrap()).len(), 270);
        let none = Labels::classes(vec![-1, -1], vec![]).unwrap();
        assert!(all(&none).is_err());
        assert!(random(&none, Fractions::DEFAULT, 0).is_err());
    }

    #[test]
    fn every_item_is_tested_in_one_fold() {
        let folds = Folds { count: 7, val: FoldVal::Next };
        for splits in [k_fold(&labels(), folds, 5), stratified_k_fold(&labels(), folds, 5)] {
            let splits = splits.unwrap();
            assert!(splits.iter().all(|split| check(split).len() == 270));
            let tested: Vec<u32> = splits.iter().flat_map(|split| split.test.clone()).collect();
            assert_eq!(tested.len(), 270);
            assert_eq!(tested.iter().collect::<HashSet<_>>().len(), 270);
            assert!(splits.iter().all(|split| (38..=39).contains(&split.test.len())));
            assert_eq!(splits[0].val, splits[1].test);
        }
        let stratified = stratified_k_fold(&labels(), folds, 5).unwrap();
        let counts: Vec<_> = stratified.iter().map(|split| per_class(&split.test)).collect();
        for class in 0..3 {
            let of: Vec<usize> = counts.iter().map(|count| count[class]).collect();
            assert!(of.iter().max().unwrap() - of.iter().min().unwrap() <= 1, "{of:?}");
        }
        assert!(k_fold(&labels(), Folds { count: 1, val: FoldVal::None }, 5).is_err());
        assert!(k_fold(&labels(), Folds { count: 2, val: FoldVal::Next }, 5).is_err());
        assert!(k_fold(&labels(), Folds { count: 271, val: FoldVal::None }, 5).is_err());
    }

    #[test]
    fn shares_must_be_possible() {
        assert!(Fractions::new(0.7, 0.2, 0.2).is_err());
        assert!(Fractions::new(-0.1, 0.2, 0.2).is_err());
        assert!(Fractions::new(f64::NAN, 0.2, 0.2).is_err());
        assert!(Fractions::new(0.0, 0.5, 0.5).is_err());
        assert!(Fractions::new(0.8, 0.1, 0.1).is_ok());
        let numbers = Labels::Targets(lacis_core::Dense::zeros(4, 1));
        assert!(stratified(&numbers, Fractions::DEFAULT, 0).is_err());
        assert!(random(&numbers, Fractions::DEFAULT, 0).is_ok());
    }
}
