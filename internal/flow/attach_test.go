package flow

import (
	"testing"
	"time"
)

// A flow that goes into the kernel is offloaded from then on, and no longer one
// that is not; everybody who listens is told so.
func TestAttachHandsOff(t *testing.T) {
	c := &clock{}
	r := NewRegistry(Options{Now: c.now})
	rec := r.Open(web())
	rec.Attach(PathUserspace, pathOf(5, 50))
	rec.Dialled()
	rec.NotOffloaded(NotOffloadedWaiting)
	sub := r.Subscribe(nil, 10)
	defer sub.Close()
	c.advance(time.Second)
	rec.HandingOff()
	if v := rec.View(); v.State != HandingOff || v.Path != PathUserspace || v.NotOffloaded != NotOffloadedWaiting {
		t.Errorf("while it stands still: %+v", v)
	}
	rec.Attach(PathBPF, pathOf(0, 0))
	at := start.Add(time.Second)
	if v := rec.View(); v.State != Offloaded || v.Path != PathBPF || v.HandedOffAt != at || v.NotOffloaded != "" {
		t.Errorf("handed off: %+v", v)
	}
	e := <-sub.C
	if e.Event != EventHandedOff || e.Path != PathBPF || e.State != Offloaded || e.HandedOffAt != at {
		t.Errorf("the event: %+v", e)
	}
	rec.StaysHere()
	rec.NotOffloaded(NotOffloadedBusy)
	rec.HalfClosed(ByClient)
	if v := rec.View(); v.State != Offloaded || v.NotOffloaded != "" {
		t.Errorf("and still: %+v", v)
	}
	if e := <-sub.C; e.Event != EventHalfClosed || e.State != Offloaded {
		t.Errorf("the event: %+v", e)
	}
	rec.Finish(ByClient, ReasonClosed)
	if v := r.LastEnded()[0]; v.Path != PathBPF || v.HandedOffAt != at {
		t.Errorf("ended: %+v", v)
	}
}

// A flow that comes back is as if it had never been away, but for what it carried.
func TestAttachUserspaceAgain(t *testing.T) {
	r := NewRegistry(Options{})
	rec := r.Open(web())
	rec.Attach(PathUserspace, pathOf(5, 50))
	rec.Dialled()
	rec.Attach(PathBPF, pathOf(7, 70))
	rec.Attach(PathUserspace, pathOf(1, 10))
	v := rec.View()
	if v.State != Established || v.Path != PathUserspace || !v.HandedOffAt.IsZero() || v.BytesToBackend != 13 || v.BytesToClient != 130 {
		t.Errorf("%+v", v)
	}
	rec.NotOffloaded(NotOffloadedWaiting)
	if v := rec.View(); v.NotOffloaded != NotOffloadedWaiting {
		t.Errorf("%+v", v)
	}
}

// An attempt that leads to nothing leaves the flow as it was.
func TestHandingOffAndBack(t *testing.T) {
	r := NewRegistry(Options{})
	for _, tt := range []struct {
		name string
		at   State
		do   func(*Record)
		want State // meanwhile
	}{
		{"dialing", Dialing, func(*Record) {}, Dialing},
		{"established", Established, func(rec *Record) { rec.Dialled() }, HandingOff},
		{"half-closed", HalfClosed, func(rec *Record) { rec.HalfClosed(ByClient) }, HandingOff},
		{"ended", Ended, func(rec *Record) { rec.Finish(ByClient, ReasonReset) }, Ended},
	} {
		rec := r.Open(web())
		tt.do(rec)
		rec.HandingOff()
		rec.HandingOff()
		if got := rec.View().State; got != tt.want {
			t.Errorf("%s: %s meanwhile, want %s", tt.name, got, tt.want)
		}
		rec.StaysHere()
		rec.StaysHere()
		if got := rec.View().State; got != tt.at {
			t.Errorf("%s: %s afterwards", tt.name, got)
		}
	}
}

// What keeps a flow in userspace may become unknown: that is no event.
func TestNotOffloadedIsTold(t *testing.T) {
	r := NewRegistry(Options{})
	sub := r.Subscribe(nil, 10)
	defer sub.Close()
	rec := r.Open(web())
	<-sub.C
	for _, why := range []NotOffloaded{"", NotOffloadedHostLocal, NotOffloadedHostLocal, "", NotOffloadedBusy} {
		rec.NotOffloaded(why)
		if v := rec.View(); v.NotOffloaded != why {
			t.Errorf("%q, want %q", v.NotOffloaded, why)
		}
	}
	for _, want := range []NotOffloaded{NotOffloadedHostLocal, NotOffloadedBusy} {
		if e := <-sub.C; e.Event != EventNotOffloaded || e.NotOffloaded != want {
			t.Errorf("%+v", e)
		}
	}
	if len(sub.C) > 0 {
		t.Errorf("and %+v", <-sub.C)
	}
}

// A flow that outlived its process shows as before, and its backend has it.
func TestAdopt(t *testing.T) {
	r := NewRegistry(Options{})
	l := r.Acquire("web", one)
	sub := r.Subscribe(nil, 10)
	defer sub.Close()
	kernel := pathOf(20, 30)
	s := web()
	s.ID, s.StartedAt, s.Counters = 77, start, Counters{BytesToBackend: 1000}
	s.Backend, s.Picked, s.Load = one, ByAffinity, l
	s.PathName, s.Path, s.HandedOffAt = PathBPF, kernel, start.Add(time.Second)
	rec := r.Open(s)
	want := View{
		ID: 77, Mode: ModeProxy, Protocol: TCP, Service: "web", Frontend: frontend, Client: client, Backend: one,
		Path: PathBPF, State: Offloaded, Picked: ByAffinity, StartedAt: start, HandedOffAt: start.Add(time.Second),
		BytesToBackend: 1020, BytesToClient: 30,
	}
	if v := rec.View(); v != want {
		t.Errorf("%+v\nwant %+v", v, want)
	}
	if l.Flows() != 1 || len(sub.C) != 0 {
		t.Errorf("its backend has %d flows; %d events", l.Flows(), len(sub.C))
	}
	kernel.toBackend.Add(5)
	st := r.Stats()
	if n := st.Active[ActiveKey{"web", TCP, PathBPF}]; n != 1 {
		t.Errorf("%d active", n)
	}
	if n := st.Bytes[BytesKey{"web", ToBackend, PathBPF}]; n != 5 {
		t.Errorf("%d bytes, want those since it was adopted", n)
	}
	rec.Finish(ByBackend, ReasonClosed)
	st = r.Stats()
	if l.Flows() != 0 || st.Ended[EndedKey{"web", TCP, PathBPF, ByBackend, ReasonClosed}] != 1 || st.Bytes[BytesKey{"web", ToBackend, PathBPF}] != 5 {
		t.Errorf("ended: %d flows, %+v", l.Flows(), st)
	}
}

// Everybody who asked hears of the end, the last to ask first.
func TestWhenEnded(t *testing.T) {
	r := NewRegistry(Options{})
	rec := r.Open(web())
	var told []int
	for i := range 3 {
		rec.WhenEnded(func() { told = append(told, i) })
	}
	rec.Finish(ByClient, ReasonClosed)
	late := false
	rec.WhenEnded(func() { late = true })
	if !late {
		t.Error("who asked too late was not told")
	}
	if len(told) != 3 || told[0] != 2 || told[2] != 0 {
		t.Errorf("told %v", told)
	}
}
