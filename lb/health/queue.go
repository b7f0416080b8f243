package health

// queue is backends in the order in which they came. Removed backends stay in
// it until it is their turn.
type queue struct {
	waiting []*backend
	head    int // of waiting
}

func (q *queue) len() int { return len(q.waiting) - q.head }

func (q *queue) push(b *backend) {
	if q.head > 0 && len(q.waiting) == cap(q.waiting) {
		n := copy(q.waiting, q.waiting[q.head:])
		clear(q.waiting[n:])
		q.waiting, q.head = q.waiting[:n], 0
	}
	q.waiting = append(q.waiting, b)
}

// pop returns the first, or nil.
func (q *queue) pop() *backend {
	if q.len() == 0 {
		return nil
	}
	b := q.waiting[q.head]
	q.waiting[q.head] = nil
	if q.head++; q.len() == 0 {
		q.waiting, q.head = q.waiting[:0], 0
	}
	return b
}
