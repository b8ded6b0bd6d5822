//! Weights as files have them, and everything that a training goes on from.

use std::collections::HashMap;

use lacis_core::reference::Moments;
use lacis_core::{Dense, Error, Result};
use lacis_plan::op::NormKind;
use lacis_plan::{Expr, Op};

use super::Trainer;
use super::learn::Within;
use crate::nn::build::{ParamSpec, Stored};
use crate::nn::{Config, Model};
use crate::params::Params;
use crate::store::{Tensor, Tensors};

/// The shape of a parameter in files.
fn stored_shape(spec: &ParamSpec) -> Vec<usize> {
    let [rows, cols] = spec.shape;
    match spec.stored {
        Stored::Transposed => vec![cols, rows],
        Stored::Vector => vec![rows * cols],
        Stored::Heads => vec![1, rows, cols],
        Stored::AsIs => vec![rows, cols],
    }
}

fn to_stored(spec: &ParamSpec, value: &Dense) -> Result<Tensor> {
    let [rows, cols] = spec.shape;
    let numbers: Vec<f32> = match spec.stored {
        Stored::Transposed => (0..cols)
            .flat_map(|j| (0..rows).map(move |i| (i, j)))
            .map(|(i, j)| value.row(i)[j])
            .collect(),
        _ => value.rows().flatten().copied().collect(),
    };
    Tensor::new(&stored_shape(spec), numbers)
}

fn from_stored(spec: &ParamSpec, tensors: &mut Tensors) -> Result<Dense> {
    let [rows, cols] = spec.shape;
    let numbers = tensors.take::<f32>(&spec.name, &stored_shape(spec))?;
    Ok(match spec.stored {
        Stored::Transposed => Dense::from_fn(rows, cols, |i, j| f64::from(numbers[j * rows + i])),
        _ => Dense::from_vec(numbers.to_vec(), rows, cols)?,
    })
}

/// A network's weights under the names and in the shapes that torch_geometric has.
///
/// # Errors
/// When there is no memory.
pub fn model_tensors(model: &Model, params: &Params) -> Result<Tensors> {
    let mut tensors = Tensors::new();
    for (spec, param) in model.params.iter().zip(params.all()) {
        tensors.insert(spec.name.clone(), to_stored(spec, &param.value)?);
    }
    // GIN's fixed epsilon is part of torch_geometric's state, though nobody learns it.
    if model.name == "gin" && !model.config.learn_eps {
        for layer in 0..model.config.layers {
            tensors.insert(
                format!("convs.{layer}.eps"),
                Tensor::new(&[1], vec![model.config.eps as f32])?,
            );
        }
    }
    tensors.set("model", model.name.clone());
    tensors.set("hidden", model.config.hidden.to_string());
    Ok(tensors)
}

/// Gives a network the weights of a file, and returns the estimates of its batch norms by their
/// keys, where the file has some.
///
/// # Errors
/// When a weight is missing, has another shape, or does not belong to the network.
pub fn load_model(
    model: &Model,
    params: &mut Params,
    mut tensors: Tensors,
) -> Result<HashMap<u32, Moments>> {
    for (spec, param) in model.params.iter().zip(params.all_mut()) {
        param.value = from_stored(spec, &mut tensors)?;
    }
    if model.name == "gin" && !model.config.learn_eps {
        for layer in 0..model.config.layers {
            let name = format!("convs.{layer}.eps");
            if tensors.get(&name).is_some() {
                tensors.take::<f32>(&name, &[1])?;
            }
        }
    }
    let running = loaded_moments(model, &mut tensors)?;
    tensors.finish()?;
    Ok(running)
}

/// The batch norms of a network: keys, names as torch_geometric has them, widths.
fn batch_norms(model: &Model) -> Vec<(u32, String, usize)> {
    let all = Expr::sorted(std::slice::from_ref(&model.network.result));
    let norms = all.iter().filter_map(|expr| match (expr.op(), expr.args()) {
        (Op::Norm { kind: NormKind::Batch, key }, [x, gamma, _]) => {
            let spec = model.params.iter().find(|spec| spec.expr == *gamma)?;
            let prefix = spec.name.strip_suffix(".weight")?;
            Some((*key, prefix.to_owned(), x.width()))
        }
        _ => None,
    });
    norms.collect()
}

/// Estimates of batch norms, under the names that torch_geometric's `BatchNorm` has.
fn add_moments(
    model: &Model,
    (running, steps): (&HashMap<u32, Moments>, u64),
    tensors: &mut Tensors,
) -> Result<()> {
    for (key, prefix, width) in batch_norms(model) {
        let Some(moments) = running.get(&key) else { continue };
        let single = |numbers: &[f64]| -> Vec<f32> { numbers.iter().map(|&x| x as f32).collect() };
        for (what, numbers) in [("running_mean", &moments.mean), ("running_var", &moments.var)] {
            tensors.insert(format!("{prefix}.{what}"), Tensor::new(&[width], single(numbers))?);
        }
        let count = Tensor::new(&[], vec![steps as i64])?;
        tensors.insert(format!("{prefix}.num_batches_tracked"), count);
    }
    Ok(())
}

/// The same, read again; nothing for a norm that the file has no estimates of.
fn loaded_moments(model: &Model, tensors: &mut Tensors) -> Result<HashMap<u32, Moments>> {
    let mut running = HashMap::new();
    for (key, prefix, width) in batch_norms(model) {
        let name = |what: &str| format!("{prefix}.{what}");
        if tensors.get(&name("num_batches_tracked")).is_some() {
            tensors.take::<i64>(&name("num_batches_tracked"), &[])?;
        }
        if tensors.get(&name("running_mean")).is_none() {
            continue;
        }
        let mut double = |what: &str| -> Result<Vec<f64>> {
            let numbers = tensors.take::<f32>(&name(what), &[width])?;
            Ok(numbers.iter().map(|&x| f64::from(x)).collect())
        };
        let (mean, var) = (double("running_mean")?, double("running_var")?);
        running.insert(key, Moments { mean, var });
    }
    Ok(running)
}

impl Trainer<'_> {
    /// Everything that the next epoch depends on.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn checkpoint(&self) -> Result<Tensors> {
        let mut tensors = Tensors::new();
        for (spec, param) in self.model.params.iter().zip(self.core.params.all()) {
            tensors.insert(format!("weight.{}", spec.name), Tensor::matrix(&param.value));
            let first = Tensor::new(&[param.first.len()], param.first.clone())?;
            let second = Tensor::new(&[param.second.len()], param.second.clone())?;
            tensors.insert(format!("first.{}", spec.name), first);
            tensors.insert(format!("second.{}", spec.name), second);
        }
        for (key, moments) in &self.core.running {
            let len = [moments.mean.len()];
            tensors.insert(format!("mean.{key}"), Tensor::new(&len, moments.mean.clone())?);
            tensors.insert(format!("var.{key}"), Tensor::new(&len, moments.var.clone())?);
        }
        let Within { batches, items, loss, seconds } = self.within;
        let within = vec![batches as f64, items, loss, seconds];
        tensors.insert("within", Tensor::new(&[4], within)?);
        let plateau = self.plateau.state().to_vec();
        tensors.insert("plateau", Tensor::new(&[4], plateau)?);
        if let Some(approx) = &self.core.approx {
            approx.save(&mut tensors)?;
        }
        tensors.set("epoch", self.epoch.to_string());
        tensors.set("steps", self.core.params.steps().to_string());
        tensors.set("plan", self.chosen.plan.id());
        Ok(tensors)
    }

    /// Goes on from a checkpoint.
    ///
    /// # Errors
    /// When it is of another network or plan, or does not fit.
    pub fn restore(&mut self, mut tensors: Tensors) -> Result<()> {
        let number = |tensors: &Tensors, key: &str| {
            let text = tensors.metadata().get(key).cloned().unwrap_or_default();
            text.parse::<u64>()
                .map_err(|_| Error::argument("checkpoint", format!("has no number called '{key}'")))
        };
        let (epoch, steps) = (number(&tensors, "epoch")?, number(&tensors, "steps")?);
        let plan = self.chosen.plan.id();
        match tensors.metadata().get("plan") {
            Some(own) if *own == plan => {}
            own => {
                let own = own.cloned().unwrap_or_default();
                let problem = format!("was made with plan {own}, this is plan {plan}");
                return Err(Error::argument("checkpoint", problem));
            }
        }
        for (spec, param) in self.model.params.iter().zip(self.core.params.all_mut()) {
            let [rows, cols] = spec.shape;
            let weight = tensors.take::<f32>(&format!("weight.{}", spec.name), &[rows, cols])?;
            param.value = Dense::from_vec(weight.to_vec(), rows, cols)?;
            let len = [param.first.len()];
            param.first = tensors.take::<f32>(&format!("first.{}", spec.name), &len)?.to_vec();
            param.second = tensors.take::<f32>(&format!("second.{}", spec.name), &len)?.to_vec();
        }
        self.take_moments(&mut tensors)?;
        let [batches, items, loss, seconds] = tensors.take::<f64>("within", &[4])?[..] else {
            return Err(Error::argument(
                "checkpoint",
                "does not say where in an epoch it was made",
            ));
        };
        self.within = Within { batches: batches as usize, items, loss, seconds };
        let [a, b, c, d] = tensors.take::<i64>("plateau", &[4])?[..] else {
            return Err(Error::argument("checkpoint", "does not say how rates fell"));
        };
        self.plateau.restore([a, b, c, d])?;
        if let Some(approx) = &mut self.core.approx {
            approx.restore(&mut tensors)?;
        }
        tensors.finish()?;
        // Memory of an executor that ran before holds another state's values.
        self.core.executor = None;
        self.epoch = epoch as usize;
        self.core.params.set_steps(steps);
        Ok(())
    }

    /// Takes the estimates of batch norms alone from a checkpoint.
    ///
    /// # Errors
    /// When they do not fit together.
    pub fn restore_moments(&mut self, tensors: &Tensors) -> Result<()> {
        self.take_moments(&mut tensors.clone())
    }

    fn take_moments(&mut self, tensors: &mut Tensors) -> Result<()> {
        let keys: Vec<(u32, usize)> = tensors
            .iter()
            .filter_map(|(name, tensor)| {
                Some((name.strip_prefix("mean.")?.parse().ok()?, tensor.shape().first().copied()?))
            })
            .collect();
        for (key, len) in keys {
            let mean = tensors.take::<f64>(&format!("mean.{key}"), &[len])?.to_vec();
            let var = tensors.take::<f64>(&format!("var.{key}"), &[len])?.to_vec();
            self.core.running.insert(key, Moments { mean, var });
        }
        Ok(())
    }

    /// The network's weights as files have them.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn model_tensors(&self) -> Result<Tensors> {
        let mut tensors = model_tensors(&self.model, &self.core.params)?;
        let running = (&self.core.running, self.core.params.steps());
        add_moments(&self.model, running, &mut tensors)?;
        Ok(tensors)
    }

    /// Estimates of batch norms, by their keys.
    pub fn moments(&self) -> &HashMap<u32, Moments> {
        &self.core.running
    }

    /// Goes on with other estimates of batch norms.
    pub fn set_moments(&mut self, moments: HashMap<u32, Moments>) {
        self.core.running = moments;
    }

    /// What the network was asked to be, with the data's sizes.
    pub fn config(&self) -> &Config {
        &self.model.config
    }
}
