//! The word that a misspelt one was probably meant to be.

/// The name nearest to `word`, if near enough to be a slip: one letter in three, at least one.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let slips = (word.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|name| (distance(&word, name), name))
        .filter(|(distance, name)| *distance <= slips && *distance < name.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// How a message goes on after an unknown word: the near miss, and all that is known.
pub(crate) fn did_you_mean(word: &str, names: &[&str]) -> String {
    let near = nearest(word, names.iter().copied());
    let hint = near.map_or(String::new(), |name| format!("did you mean '{name}'? "));
    format!("{hint}known: {}", names.join(", "))
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|word| word.chars().take(64).collect::<Vec<_>>());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let names = ["karate", "cora-like", "cora"];
        assert_eq!(nearest("karaet", names), Some("karate"));
        assert_eq!(nearest("Cora", names), Some("cora"));
        assert_eq!(nearest("coralike", names), Some("cora-like"));
        assert_eq!(nearest("reddit", names), None);
        assert_eq!(nearest("x", ["n", "e"]), None);
    }
}
