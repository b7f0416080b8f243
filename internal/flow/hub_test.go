package flow

import (
	"encoding/json"
	"reflect"
	"sync"
	"testing"
)

// drain reads what is in the subscription now.
func drain(s *Subscription) (events []Event) {
	for {
		select {
		case e, ok := <-s.C:
			if !ok {
				return events
			}
			events = append(events, e)
		default:
			return events
		}
	}
}

func TestEvents(t *testing.T) {
	c := &clock{}
	r := NewRegistry(Options{Now: c.now})
	sub := r.Subscribe(nil, 100)
	defer sub.Close()
	rec := r.Open(web())
	rec.Assign(Assignment{Backend: one, Picked: ByAlgorithm, Load: r.Acquire("web", one)})
	rec.DialFailed(DialRefused)
	rec.Assign(Assignment{Backend: two, Picked: ByRetry, Load: r.Acquire("web", two)})
	rec.Attach(PathUserspace, pathOf(3, 4))
	rec.Dialled()
	rec.FirstByte(ByClient)
	rec.NotOffloaded(NotOffloadedNever)
	rec.NotOffloaded(NotOffloadedNever) // said once
	rec.HalfClosed(ByBackend)
	rec.Finish(ByBackend, ReasonClosed)
	rec.Finish(ByClient, ReasonReset) // too late
	id := rec.ID()
	want := []Event{
		{Event: EventAccepted, Mode: ModeProxy, Protocol: TCP, Service: "web", Frontend: frontend, Client: client, State: Dialing, StartedAt: start},
		{Event: EventPicked, Backend: one, Picked: ByAlgorithm},
		{Event: EventDialFailed, Backend: one, DialFailure: DialRefused},
		{Event: EventPicked, Backend: two, Picked: ByRetry},
		{Event: EventDialled, Backend: two, State: Established},
		{Event: EventFirstByte, From: ByClient},
		{Event: EventNotOffloaded, NotOffloaded: NotOffloadedNever},
		{Event: EventHalfClosed, State: HalfClosed, From: ByBackend},
		{Event: EventEnded, State: Ended, EndedAt: start, EndedBy: ByBackend, Reason: ReasonClosed, BytesToBackend: 3, BytesToClient: 4},
	}
	got := drain(sub)
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d: %+v", len(got), len(want), got)
	}
	for i := range got {
		if a := got[i].About(); a.ID != id || a.Service != "web" || a.Client != client {
			t.Errorf("%s is about %+v", got[i].Event, a)
		}
		got[i].about, want[i].Flow, want[i].Time = View{}, id, start
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("event %d: %+v\nwant %+v", i, got[i], want[i])
		}
	}
}

func TestRefusedAssignmentIsNoEvent(t *testing.T) {
	r := NewRegistry(Options{})
	l := r.Acquire("web", one)
	openOn(r, l)
	rec := r.Open(web())
	sub := r.Subscribe(nil, 10)
	defer sub.Close()
	rec.Assign(Assignment{Backend: one, Load: l, Limit: 1})
	rec.Assign(Assignment{Backend: one, Load: l, Limit: 2})
	rec.Assign(Assignment{Backend: one, Load: l, Limit: 2})
	if got := drain(sub); len(got) != 1 || got[0].Event != EventPicked {
		t.Errorf("%+v", got)
	}
}

func TestEventsOnlyToWhoMatches(t *testing.T) {
	r := NewRegistry(Options{})
	of := func(service string) func(*View) bool {
		return func(v *View) bool { return v.Service == service }
	}
	all, ofWeb, none := r.Subscribe(nil, 100), r.Subscribe(of("web"), 100), r.Subscribe(of("none"), 100)
	defer all.Close()
	defer ofWeb.Close()
	defer none.Close()
	for _, service := range []string{"web", "api", "web"} {
		s := web()
		s.Service = service
		r.Open(s).Finish(ByClient, ReasonClosed)
	}
	for _, c := range []struct {
		name string
		sub  *Subscription
		want int
	}{{"all", all, 6}, {"web", ofWeb, 4}, {"none", none, 0}} {
		if got := drain(c.sub); len(got) != c.want || c.sub.Missed() != 0 {
			t.Errorf("%s: %d events, %d missed; want %d", c.name, len(got), c.sub.Missed(), c.want)
		}
	}
}

// A filter by backend or state sees the flow as it is at that event.
func TestMatchSeesTheFlowAsItIs(t *testing.T) {
	r := NewRegistry(Options{})
	sub := r.Subscribe(func(v *View) bool { return v.Backend == one }, 100)
	defer sub.Close()
	rec := openOn(r, r.Acquire("web", one))
	rec.Finish(ByClient, ReasonClosed)
	var names []EventName
	for _, e := range drain(sub) {
		names = append(names, e.Event)
	}
	if !reflect.DeepEqual(names, []EventName{EventPicked, EventEnded}) {
		t.Errorf("%v", names)
	}
}

// A slow subscriber delays nobody: what does not fit is dropped and counted.
func TestSlowSubscriber(t *testing.T) {
	r := NewRegistry(Options{})
	slow, fast := r.Subscribe(nil, 3), r.Subscribe(nil, 100)
	defer slow.Close()
	defer fast.Close()
	for range 10 {
		r.Open(web())
	}
	if slow.Missed() != 7 || fast.Missed() != 0 || r.DropCounts()[DropEvents] != 7 {
		t.Errorf("missed %d and %d, drops %d; want 7, 0, 7", slow.Missed(), fast.Missed(), r.DropCounts()[DropEvents])
	}
	if a, b := len(drain(slow)), len(drain(fast)); a != 3 || b != 10 {
		t.Errorf("received %d and %d; want 3 and 10", a, b)
	}
	r.Open(web())
	if len(drain(slow)) != 1 {
		t.Error("once read, it receives again")
	}
}

func TestClosedSubscription(t *testing.T) {
	r := NewRegistry(Options{})
	sub := r.Subscribe(nil, 10)
	r.Open(web())
	sub.Close()
	sub.Close()
	r.Open(web())
	if len(drain(sub)) != 1 || r.hub.listening() {
		t.Error("it receives after Close")
	}
	if _, open := <-sub.C; open {
		t.Error("the channel is not closed")
	}
}

func TestSubscribeConcurrently(t *testing.T) {
	r := NewRegistry(Options{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 200 {
				r.Open(web()).Finish(ByClient, ReasonClosed)
			}
		})
		wg.Go(func() {
			for range 100 {
				sub := r.Subscribe(nil, 1)
				drain(sub)
				sub.Close()
			}
		})
	}
	wg.Wait()
	if r.hub.listening() {
		t.Error("somebody is left")
	}
}

func TestEventJSON(t *testing.T) {
	b, err := json.Marshal(Event{Time: start, Flow: 0xab, Event: EventPicked, Backend: one, Picked: ByRetry})
	want := `{"time":"2026-01-02T03:04:05.000000006Z","flow":"00000000000000ab","event":"picked","backend":"10.0.0.1:8080","picked":"retry"}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v\nwant %s", b, err, want)
	}
}

func TestViewJSON(t *testing.T) {
	b, err := json.Marshal(View{
		ID: 1, Mode: ModeProxy, Protocol: TCP, Service: "web", Client: client, Frontend: frontend, State: Dialing,
		StartedAt: start, BytesToClient: 5,
	})
	want := `{"id":"0000000000000001","mode":"proxy","protocol":"tcp","service":"web","frontend":"10.96.0.10:80",` +
		`"client":"192.0.2.7:40000","state":"dialing","startedAt":"2026-01-02T03:04:05.000000006Z",` +
		`"bytesToBackend":0,"bytesToClient":5,"packetsToBackend":0,"packetsToClient":0}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v\nwant %s", b, err, want)
	}
	var v View
	if err := json.Unmarshal(b, &v); err != nil || v.Client != client || v.ID != 1 || v.Backend.IsValid() {
		t.Errorf("%+v, %v", v, err)
	}
}
