package offload

import (
	"errors"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/offload/bpf"
)

// readEvents follows what happens to flows in the kernel until that is closed. An
// event only says where to look: should some be lost, the next look finds the same.
func (o *Offloader) readEvents() {
	for {
		e, err := o.kernel.ReadEvent()
		switch {
		case errors.Is(err, bpf.ErrClosed):
			return
		case err != nil:
			o.log.Warn("follow flows in the kernel", "err", err)
			if o.closed() {
				return
			}
			continue
		}
		o.happened(e)
	}
}

func (o *Offloader) closed() bool {
	o.alive.RLock()
	defer o.alive.RUnlock()
	return o.gone
}

func (o *Offloader) happened(e Event) {
	o.mu.Lock()
	p := o.paths[e.Flow]
	o.mu.Unlock()
	if p == nil {
		return // in userspace, or not handed off to the end: it will be looked at then
	}
	if e.What == bpf.EventFIN {
		p.closes(e.Direction)
	}
	p.look(o.now())
}

// closes notes who closed first.
func (p *path) closes(d bpf.Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closedBy != "" {
		return
	}
	p.closedBy = flow.ByClient
	if d == bpf.ToClient {
		p.closedBy = flow.ByBackend
	}
}
