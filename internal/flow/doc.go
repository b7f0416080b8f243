// Package flow owns the vocabulary that every part of Baton shares: what a
// flow is (Key, ID, Proto), what is known about one (Record, View), where all
// live ones are listed (Registry), and the closed lists of words that say why
// something happened (reasons.go). The command line, metrics, traces and the
// dashboard show this registry and nothing else.
//
// It does no I/O and knows no data path: a path attaches itself to a record
// (Path), is asked for counters there and told there to end the flow.
//
// Lock order: Registry shard, then Record, then a Path's own lock or the table
// of Loads. Counters of a path are read under both of the former, so
// Path.Counters must not call back into this package.
package flow
