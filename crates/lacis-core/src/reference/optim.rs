//! Optimizers: one step of Adam, AdamW and SGD, as torch takes it.
//!
//! ```text
//!   Adam:   g ← g + λ·w                         (coupled weight decay)
//!   AdamW:  w ← w − lr·λ·w                      (decoupled)
//!   both:   m ← β₁·m + (1 − β₁)·g               v ← β₂·v + (1 − β₂)·g²
//!           w ← w − lr · m/(1 − β₁ᵗ) / ( √(v/(1 − β₂ᵗ)) + ε )
//!   SGD:    g ← g + λ·w        u ← μ·u + g      w ← w − lr·u
//! ```

use crate::Result;
use crate::error::same_size;

/// How weight decay reaches the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// Through the gradient, as Adam has it.
    Coupled,
    /// Past the gradient, as AdamW has it.
    Decoupled,
}

/// Adam and AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// `lr`.
    pub rate: f64,
    /// `β₁` and `β₂`.
    pub betas: [f64; 2],
    /// `ε`, outside the square root.
    pub eps: f64,
    /// `λ`.
    pub weight_decay: f64,
    /// Adam or AdamW.
    pub decay: Decay,
}

/// What Adam keeps between steps.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamState {
    /// `m`.
    pub first: Vec<f64>,
    /// `v`.
    pub second: Vec<f64>,
    /// `t`: the number of steps taken.
    pub steps: u64,
}

impl AdamState {
    /// Before the first step, for `n` weights.
    pub fn new(n: usize) -> Self {
        AdamState { first: vec![0.0; n], second: vec![0.0; n], steps: 0 }
    }
}

impl Adam {
    /// torch's defaults: `β` 0.9 and 0.999, `ε` 1e-8, no weight decay.
    pub fn new(rate: f64) -> Self {
        Adam { rate, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0, decay: Decay::Coupled }
    }

    /// torch's defaults for AdamW: as Adam's, and `λ` 0.01, decoupled.
    pub fn decoupled(rate: f64) -> Self {
        Adam { weight_decay: 0.01, decay: Decay::Decoupled, ..Adam::new(rate) }
    }

    /// One step.
    ///
    /// # Errors
    /// When the gradient or the state is not as long as the weights.
    pub fn step(&self, w: &mut [f64], grad: &[f64], state: &mut AdamState) -> Result<()> {
        same_size("adam", "length of the gradient", w.len(), grad.len())?;
        same_size("adam", "length of the first moment", w.len(), state.first.len())?;
        same_size("adam", "length of the second moment", w.len(), state.second.len())?;
        state.steps += 1;
        let correction = self.betas.map(|beta| 1.0 - beta.powf(state.steps as f64));
        let [beta1, beta2] = self.betas;
        for i in 0..w.len() {
            let mut g = grad[i];
            match self.decay {
                Decay::Coupled => g += self.weight_decay * w[i],
                Decay::Decoupled => w[i] -= self.rate * self.weight_decay * w[i],
            }
            let (m, v) = (&mut state.first[i], &mut state.second[i]);
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            let (m, v) = (*m / correction[0], *v / correction[1]);
            w[i] -= self.rate * m / (v.sqrt() + self.eps);
        }
        Ok(())
    }
}

/// Stochastic gradient descent with momentum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// `lr`.
    pub rate: f64,
    /// `μ`; 0 for none.
    pub momentum: f64,
    /// `λ`, through the gradient.
    pub weight_decay: f64,
}

impl Sgd {
    /// One step; `velocity` is `u`, zeros before the first step.
    ///
    /// # Errors
    /// When the gradient or the velocity is not as long as the weights.
    pub fn step(&self, w: &mut [f64], grad: &[f64], velocity: &mut [f64]) -> Result<()> {
        same_size("sgd", "length of the gradient", w.len(), grad.len())?;
        same_size("sgd", "length of the velocity", w.len(), velocity.len())?;
        for i in 0..w.len() {
            velocity[i] = self.momentum * velocity[i] + grad[i] + self.weight_decay * w[i];
            w[i] -= self.rate * velocity[i];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::assert_close;
    use super::*;

    #[test]
    fn adam_by_hand() {
        let adam = Adam { betas: [0.5, 0.75], eps: 1.0, ..Adam::new(0.1) };
        let (mut w, mut state) = ([1.0], AdamState::new(1));
        // m̂ = 4, v̂ = 16: the first step is lr·g / (|g| + ε).
        adam.step(&mut w, &[4.0], &mut state).unwrap();
        assert_close(&w, &[1.0 - 0.1 * 4.0 / 5.0]);
        assert_close(&[state.first[0], state.second[0]], &[2.0, 4.0]);
        // m = 1 + 1 = 2, v = 3 + 1 = 4; corrections 3/4 and 7/16.
        let before = w[0];
        adam.step(&mut w, &[2.0], &mut state).unwrap();
        let step = 0.1 * (2.0 / 0.75) / ((4.0f64 * 16.0 / 7.0).sqrt() + 1.0);
        assert_close(&w, &[before - step]);
        assert_eq!(state.steps, 2);
    }

    #[test]
    fn the_first_default_step_is_the_rate() {
        let (mut w, mut state) = ([1.0, 1.0, 1.0], AdamState::new(3));
        let grad = [1e3, -1e-3, 0.0];
        Adam::new(0.01).step(&mut w, &grad, &mut state).unwrap();
        let expected = [0.99, 1.0 + 0.01 * 1e-3 / (1e-3 + 1e-8), 1.0];
        w.iter().zip(expected).for_each(|(w, e)| assert!((w - e).abs() < 1e-12));
    }

    #[test]
    fn weight_decay_is_coupled_or_not() {
        let coupled = Adam { weight_decay: 0.5, ..Adam::new(0.1) };
        let (mut w, mut state) = ([2.0], AdamState::new(1));
        coupled.step(&mut w, &[0.0], &mut state).unwrap();
        // The gradient is 1, whose size Adam forgets.
        assert!((w[0] - 1.9).abs() < 1e-8);
        assert_close(&state.first, &[0.1]);
        let (mut w, mut state) = ([2.0], AdamState::new(1));
        Adam::decoupled(0.1).step(&mut w, &[0.0], &mut state).unwrap();
        assert_close(&w, &[2.0 * (1.0 - 0.1 * 0.01)]);
        assert_eq!(state.first, [0.0]);
    }

    #[test]
    fn sgd_by_hand() {
        let sgd = Sgd { rate: 0.1, momentum: 0.5, weight_decay: 0.25 };
        let (mut w, mut velocity) = ([4.0], [0.0]);
        sgd.step(&mut w, &[1.0], &mut velocity).unwrap();
        assert_close(&[w[0], velocity[0]], &[3.8, 2.0]);
        sgd.step(&mut w, &[1.0], &mut velocity).unwrap();
        assert_close(&[w[0], velocity[0]], &[3.8 - 0.1 * 2.95, 2.95]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let adam = Adam::new(0.1);
        assert!(adam.step(&mut [1.0], &[], &mut AdamState::new(1)).is_err());
        assert!(adam.step(&mut [1.0], &[1.0], &mut AdamState::new(2)).is_err());
        assert!(adam.step(&mut [], &[], &mut AdamState::new(0)).is_ok());
        let sgd = Sgd { rate: 0.1, momentum: 0.0, weight_decay: 0.0 };
        assert!(sgd.step(&mut [1.0], &[1.0], &mut []).is_err());
    }
}
