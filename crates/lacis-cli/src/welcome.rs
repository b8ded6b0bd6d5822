//! What `lacis` alone says.

use crate::out::{Out, Outcome};

const WELCOME: &str = "\
Lacis plans graph neural networks for the graph, the sizes and the machine they meet.

Try:
  lacis train                         a GCN on the built-in example, a synthetic stand-in for Cora
  lacis explain                       the formulas that were weighed for it, and the plan
  lacis train PATH --model gat        another network, your own data
  lacis data info                     sizes, degrees, features, labels of a data set
  lacis data info PATH                your own graph: edge list, .mtx, .npz, Planetoid folder, …
  lacis data convert PATH -o my-graph save it in a format that opens in milliseconds
  lacis data generate rmat:n=100k,e=1M -o big
  lacis data list                     sets, generators and formats
  lacis tune --quick                  measure this machine, so that kernels are chosen for it
  lacis bench spmm --peers torch      time a sparse product, beside other libraries
  lacis doctor                        what this machine has

`lacis --help` shows all commands, `lacis COMMAND --help` one of them.";

pub fn print(out: &Out) -> Outcome {
    out.start("", &serde_json::Value::Null)?;
    out.line(WELCOME)
}
