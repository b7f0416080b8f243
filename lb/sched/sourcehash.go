package sched

// rendezvous gives the client to the backend with the best score for it (highest
// random weight: Thaler and Ravishankar 1998, with weights as in Ceph's straw2).
// A backend that comes or goes moves only its own share of the clients, and one
// that cannot take the flow leaves it to the client's second best.
func (t *tier) rendezvous(client uint64, f filter) *Backend {
	if t.weights == nil {
		return t.highest(client, f)
	}
	var best *Backend
	var bestHash, bestDraw, bestWeight uint64
	for i, w := range t.weights {
		h := mix(client ^ t.hashes[i])
		draw, weight := negLog2(h), uint64(w)
		// The smallest draw/weight wins; draws have at most 39 bits, shares 23.
		ours, theirs := draw*bestWeight, bestDraw*weight
		if best != nil && (ours > theirs || ours == theirs && h <= bestHash) {
			continue
		}
		if b := t.backends[i]; f.allows(b) {
			best, bestHash, bestDraw, bestWeight = b, h, draw, weight
		}
	}
	return best
}

// highest is rendezvous for equal weights, where the logarithm changes nothing.
func (t *tier) highest(client uint64, f filter) *Backend {
	var best *Backend
	var bestHash uint64
	for i, k := range t.hashes {
		h := mix(client ^ k)
		if best != nil && h <= bestHash {
			continue
		}
		if b := t.backends[i]; f.allows(b) {
			best, bestHash = b, h
		}
	}
	return best
}

func hashesOf(backends []*Backend) []uint64 {
	out := make([]uint64, len(backends))
	for i, b := range backends {
		out[i] = hashAddrPort(b.Address)
	}
	return out
}
