//! A plot of bars in groups: one group a command, one bar a variant. Each group has a scale of its own, from 0 to its
//! longest bar, because commands on 100 items and on one differ by a factor of fifty.

use super::svg::{Svg, WIDTH};
use super::table::significant;

const LEFT: f64 = 16.0;
const LONGEST: f64 = WIDTH - 96.0;
const BAR: f64 = 16.0;
const TITLE: f64 = 24.0;
const GAP: f64 = 14.0;

/// Bars that are compared: a title, and a cost for each of the series, where there is one.
pub struct Group {
    /// What the bars are about.
    pub title: String,
    /// In the order of the series.
    pub values: Vec<Option<f64>>,
}

/// Draws the groups below one another. Nothing where there is no value.
pub fn plot(title: &str, unit: &str, series: &[String], groups: &[Group]) -> Option<String> {
    groups.iter().flat_map(|group| &group.values).flatten().next()?;
    let height = |group: &Group| TITLE + BAR * group.values.iter().flatten().count() as f64 + GAP;
    let mut y = 76.0;
    let mut svg = Svg::new(y + groups.iter().map(height).sum::<f64>(), title);
    svg.legend(48.0, series);
    for group in groups {
        svg.text(LEFT, y + 14.0, "", &group.title);
        let longest = group.values.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
        let mut top = y + TITLE;
        for (index, value) in group.values.iter().enumerate() {
            let Some(value) = value else { continue };
            let width = value / longest * (LONGEST - LEFT);
            svg.bar(LEFT, top, width, BAR - 4.0, index);
            svg.text(LEFT + width + 6.0, top + 10.0, "small", &format!("{} {unit}", significant(*value, 3)));
            top += BAR;
        }
        y += height(group);
    }
    Some(svg.finish())
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_of_a_group_fills_it_and_the_others_are_in_proportion() {
        let groups = [Group { title: "g".into(), values: vec![Some(1.0), None, Some(4.0)] }];
        let names: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        let file = plot("t", "us", &names, &groups).unwrap();
        let bars: Vec<&str> = file.lines().filter(|line| line.contains("height=\"12.0\"")).collect();
        assert_eq!(bars.len(), 2, "{file}");
        assert!(bars[0].contains("width=\"162.0\" height=\"12.0\" class=\"s0\""), "{}", bars[0]);
        assert!(bars[1].contains("width=\"648.0\" height=\"12.0\" class=\"s2\""), "{}", bars[1]);
        assert!(file.contains("4.00 us"));
    }

    #[test]
    fn nothing_measured_is_no_plot() {
        assert!(plot("t", "us", &[], &[Group { title: "g".into(), values: vec![None] }]).is_none());
    }
}
