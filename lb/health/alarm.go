package health

import "time"

// alarm is something to be done at a time.
type alarm struct {
	at      time.Duration // since Checker.epoch
	place   int           // in the heap, plus one; 0 = it is not set
	backend *backend
	ring    func(*Checker, *backend) // with Checker.mu held
}

func (a *alarm) isSet() bool { return a.place > 0 }

// alarms is a heap, the earliest first. It is written out because a backend
// goes through it for every probe: container/heap calls through an interface.
type alarms []*alarm

// set enters an alarm, or moves it.
func (h *alarms) set(a *alarm, at time.Duration) {
	a.at = at
	if !a.isSet() {
		*h = append(*h, a)
		a.place = len(*h)
	}
	h.down(h.up(a.place - 1))
}

// remove takes an alarm out, if it is set.
func (h *alarms) remove(a *alarm) {
	if !a.isSet() {
		return
	}
	i, last := a.place-1, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	a.place = 0
	if i < last {
		h.down(h.up(i))
	}
}

func (h *alarms) swap(i, j int) {
	s := *h
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i+1, j+1
}

// up moves the alarm at i towards the top, and returns where it has come to.
func (h *alarms) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if (*h)[parent].at <= (*h)[i].at {
			break
		}
		h.swap(i, parent)
		i = parent
	}
	return i
}

func (h *alarms) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(*h) {
			return
		}
		if right := child + 1; right < len(*h) && (*h)[right].at < (*h)[child].at {
			child = right
		}
		if (*h)[i].at <= (*h)[child].at {
			return
		}
		h.swap(i, child)
		i = child
	}
}
