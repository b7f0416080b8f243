// Package report owns the results of the performance suite: what was measured,
// round by round, what that says in sum, and how it is shown, as JSON and as
// Markdown.
//
// A figure is summed up as the median of its rounds with the least and the
// greatest. Two modes are compared round by round, because what disturbs a machine
// disturbs neighbours in time alike: a ratio is the median of the rounds' ratios,
// not the ratio of medians.
//
// It refuses to measure, and to hide: a cell that failed is shown with its error,
// and never counts as a figure.
package report
