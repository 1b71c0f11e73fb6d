//! Whether the objects are as varied as a real cluster's: what a good dictionary makes of them.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::control_plane::ControlPlane;
use crate::process::run_to_end;
use crate::settings::Settings;

const SAMPLES: usize = 5_000;
const DICTIONARY_BYTES: usize = 512 << 10;
/// Less than this a pod, and the objects are too alike.
const ENOUGH_BYTES: f64 = 550.0;

/// A sentence about the pods of a server; an error if they are too alike.
pub(crate) fn of_pods(settings: &Settings, plane: &ControlPlane) -> anyhow::Result<String> {
    let path = plane.kubeconfig.with_file_name("sample");
    let mut sample = Command::new(settings.program("bench-go"));
    sample
        .args(["sample", "--pods", &SAMPLES.to_string(), "--times"])
        .arg(&path)
        .env("KUBECONFIG", &plane.kubeconfig);
    run_to_end(&mut sample, Duration::from_secs(120))?;
    let file = std::fs::read(&path)?;
    std::fs::remove_file(&path)?;
    let (pods, whole) = split(&file)?;
    let dictionary =
        zstd::dict::from_samples(&pods, DICTIONARY_BYTES).context("no dictionary can be made")?;
    let mut compressor = zstd::bulk::Compressor::with_dictionary(3, &dictionary)?;
    let mut packed = 0;
    for pod in &pods {
        packed += compressor.compress(pod)?.len();
    }
    let count = pods.len() as f64;
    let (plain, packed) =
        (pods.iter().map(|pod| pod.len()).sum::<usize>() as f64 / count, packed as f64 / count);
    let sentence = format!(
        "pods: {:.1} KB of protobuf on average, {:.1} KB without managedFields; a dictionary of 512 KB trained on {} of them makes {packed:.0} B of one",
        whole as f64 / count / 1e3,
        plain / 1e3,
        pods.len(),
    );
    if packed < ENOUGH_BYTES {
        bail!("{sentence}: they are too alike to say anything about a real cluster");
    }
    Ok(sentence)
}

/// The pods of a sample, and how many bytes they have with managedFields.
fn split(mut file: &[u8]) -> anyhow::Result<(Vec<&[u8]>, usize)> {
    let (mut pods, mut whole) = (vec![], 0);
    while let Some((header, rest)) = file.split_first_chunk::<8>() {
        let [a, b, c, d, e, f, g, h] = *header;
        whole += u32::from_le_bytes([a, b, c, d]) as usize;
        let (pod, rest) = rest
            .split_at_checked(u32::from_le_bytes([e, f, g, h]) as usize)
            .context("the sample is cut short")?;
        pods.push(pod);
        file = rest;
    }
    Ok((pods, whole))
}
