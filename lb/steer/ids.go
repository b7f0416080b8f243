package steer

// ids gives out numbers from 1 on, the lowest first, so that tables by number stay short.
type ids[T ~uint32] struct {
	next T // none above it is in use
	free []T
}

func (n *ids[T]) take() T {
	if last := len(n.free) - 1; last >= 0 {
		id := n.free[last]
		n.free = n.free[:last]
		return id
	}
	n.next++
	return n.next
}

func (n *ids[T]) give(id T) { n.free = append(n.free, id) }

// took notes numbers that an earlier process has given out.
func (n *ids[T]) took(all map[T]bool) {
	for id := range all {
		n.next = max(n.next, id)
	}
	for id := T(1); id < n.next; id++ {
		if !all[id] {
			n.free = append(n.free, id)
		}
	}
}
