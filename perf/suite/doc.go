// Package suite owns a run: rounds in which every mode meets every workload, and
// what makes a figure of a measurement.
//
// Each round starts every mode afresh, on hosts of its own, so that the luck of one
// process is in the spread and not in the median. Within a round the modes take
// turns at one workload before the next one comes, in an order that is rotated from
// round to round, so that neighbours in time, and the time of a day, favour nobody.
//
// A cell is a figure only when the traffic has gone the way that the mode claims:
// the backends saw whom the mode shows them, and the mode's own counters grew by at
// least what arrived. Everything else is an error of that cell, shown as such; the
// run goes on.
//
// It refuses to know any mode or workload by name.
//
// No locks: a run is sequential.
package suite
