//! The intervals as a picture: load, latency, memory and files over time, with a mark for each kill.

use std::path::Path;

use anyhow::Result;
use plotters::prelude::*;

use crate::report::Interval;

const SIZE: (u32, u32) = (1_200, 1_500);
const COLORS: [RGBColor; 4] = [BLUE, RED, GREEN, MAGENTA];

/// One line: its name, and its value for an interval.
type Line<'a> = (&'a str, Box<dyn Fn(&Interval) -> f64 + 'a>);

/// Draws the intervals into an SVG file.
///
/// # Errors
/// When it cannot be written.
pub fn draw(file: &Path, intervals: &[Interval]) -> Result<()> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let panels = root.split_evenly((5, 1));
    for (panel, (title, lines)) in panels.iter().zip(charts()) {
        chart(panel, title, &lines, intervals)?;
    }
    root.present()?;
    Ok(())
}

fn charts() -> [(&'static str, Vec<Line<'static>>); 5] {
    const MIB: f64 = 1_048_576.0;
    let answers = |prefix: &'static str| -> Box<dyn Fn(&Interval) -> f64> {
        Box::new(move |interval| {
            let answers = interval.sample.answers.iter();
            let counted = answers.filter(|(label, _)| label.starts_with(prefix));
            interval.per_second(counted.map(|(_, count)| count).sum())
        })
    };
    let latency = |quantile: f64| -> Box<dyn Fn(&Interval) -> f64> {
        Box::new(move |interval| interval.sample.latency_ms(quantile))
    };
    let size = |index: usize| -> Box<dyn Fn(&Interval) -> f64> {
        Box::new(move |interval| interval.sizes[index] as f64 / MIB)
    };
    [
        (
            "answers a second; a grey line is a SIGKILL",
            vec![
                ("2xx", answers("2")),
                ("4xx", answers("4")),
                ("503", answers("503")),
                (
                    "none",
                    Box::new(|interval| {
                        let lost = ["no answer", "gave up"];
                        let counts = lost
                            .iter()
                            .filter_map(|how| interval.sample.answers.get(*how));
                        interval.per_second(counts.sum())
                    }),
                ),
            ],
        ),
        (
            "latency, ms",
            vec![("p50", latency(0.5)), ("p95", latency(0.95))],
        ),
        ("latency of the slowest, ms", vec![("p99", latency(0.99))]),
        (
            "memory of the hosts, MiB",
            vec![
                (
                    "all",
                    Box::new(|interval| interval.memory.iter().sum::<u64>() as f64 / MIB),
                ),
                (
                    "largest",
                    Box::new(|interval| {
                        interval.memory.iter().copied().max().unwrap_or(0) as f64 / MIB
                    }),
                ),
            ],
        ),
        (
            "files, MiB",
            vec![
                ("database", size(0)),
                ("WAL", size(1)),
                ("key-value", size(2)),
            ],
        ),
    ]
}

fn chart<B>(
    panel: &DrawingArea<B, plotters::coord::Shift>,
    title: &str,
    lines: &[Line<'_>],
    intervals: &[Interval],
) -> Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let end = intervals.last().map_or(1.0, |last| last.at.as_secs_f64());
    let values = lines
        .iter()
        .flat_map(|(_, value)| intervals.iter().map(value));
    let top = values.fold(1.0, f64::max) * 1.05;
    let mut chart = ChartBuilder::on(panel)
        .caption(title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("seconds")
        .draw()?;
    let kills = intervals
        .iter()
        .filter(|interval| interval.sample.kills > 0)
        .map(|interval| interval.at.as_secs_f64());
    chart.draw_series(kills.map(|at| PathElement::new([(at, 0.0), (at, top)], BLACK.mix(0.4))))?;
    for ((name, value), color) in lines.iter().zip(COLORS) {
        let points = intervals
            .iter()
            .map(|interval| (interval.at.as_secs_f64(), value(interval)));
        chart
            .draw_series(LineSeries::new(points, color))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(())
}
