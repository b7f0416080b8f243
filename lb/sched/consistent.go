package sched

// Consistent is a choice by hash for who can keep no more than a table, as a kernel's program: entry
// hash * len / 2^64 is the client's backend. It is the table of Maglev of the best tier, whatever the algorithm is:
// for Maglev the one that Pick looks at. Nil = there is nothing to choose from, or too much for a table.
func (s *Scheduler) Consistent() []*Backend {
	if len(s.tiers) == 0 {
		return nil
	}
	t := &s.tiers[0]
	backends, table := t.backends, t.table
	if table == nil {
		size := tableSize(t.listed)
		if size == 0 {
			return nil
		}
		backends = append([]*Backend(nil), backends...)
		sortByHash(backends)
		table = makeTable(backends, hashesOf(backends), size)
	}
	all := make([]*Backend, len(table))
	for i, b := range table {
		all[i] = backends[b]
	}
	return all
}
