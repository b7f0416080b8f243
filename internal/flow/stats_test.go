package flow

import (
	"reflect"
	"sync"
	"testing"
)

func TestStats(t *testing.T) {
	r := NewRegistry(Options{})
	open := func(service string, path PathName, toBackend, toClient uint64) *Record {
		s := web()
		s.Service = service
		rec := r.Open(s)
		rec.Attach(path, pathOf(toBackend, toClient))
		return rec
	}
	open("web", PathUserspace, 1, 10)
	open("web", PathUserspace, 2, 20).Finish(ByClient, ReasonClosed)
	open("web", PathUserspace, 3, 30).Finish(ByClient, ReasonClosed)
	open("web", PathBPF, 4, 40).Finish(ByBackend, ReasonReset)
	open("api", PathUserspace, 5, 50)
	r.Open(web()) // no path yet
	want := Stats{
		Active: map[ActiveKey]int64{
			{"web", TCP, PathUserspace}: 1, {"api", TCP, PathUserspace}: 1, {"web", TCP, ""}: 1,
		},
		Ended: map[EndedKey]uint64{
			{"web", TCP, PathUserspace, ByClient, ReasonClosed}: 2, {"web", TCP, PathBPF, ByBackend, ReasonReset}: 1,
		},
		Bytes: map[BytesKey]uint64{
			{"web", ToBackend, PathUserspace}: 6, {"web", ToClient, PathUserspace}: 60,
			{"web", ToBackend, PathBPF}: 4, {"web", ToClient, PathBPF}: 40,
			{"api", ToBackend, PathUserspace}: 5, {"api", ToClient, PathUserspace}: 50,
			{"web", ToBackend, ""}: 0, {"web", ToClient, ""}: 0,
		},
	}
	if got := r.Stats(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// Bytes stay with the path that carried them: a counter of a path that a flow
// has left does not go back.
func TestBytesStayWithTheirPath(t *testing.T) {
	r := NewRegistry(Options{})
	rec := r.Open(web())
	user, kernel, back := pathOf(5, 50), pathOf(7, 70), pathOf(1, 10)
	check := func(when string, userTo, userFrom, kernelTo, kernelFrom uint64) {
		t.Helper()
		b := r.Stats().Bytes
		got := []uint64{
			b[BytesKey{"web", ToBackend, PathUserspace}], b[BytesKey{"web", ToClient, PathUserspace}],
			b[BytesKey{"web", ToBackend, PathBPF}], b[BytesKey{"web", ToClient, PathBPF}],
		}
		if want := []uint64{userTo, userFrom, kernelTo, kernelFrom}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d, want %d", when, got, want)
		}
	}
	rec.Attach(PathUserspace, user)
	check("userspace", 5, 50, 0, 0)
	rec.Attach(PathBPF, kernel)
	check("handed off", 5, 50, 7, 70)
	kernel.toBackend.Add(1)
	check("goes on", 5, 50, 8, 70)
	rec.Attach(PathUserspace, back)
	check("back again", 6, 60, 8, 70)
	rec.Attach(PathUserspace, pathOf(2, 20))
	check("another of the same name", 8, 80, 8, 70)
	rec.Finish(ByClient, ReasonClosed)
	check("ended", 8, 80, 8, 70)
	if v := rec.View(); v.BytesToBackend != 16 || v.BytesToClient != 150 {
		t.Errorf("the flow itself carried %d and %d", v.BytesToBackend, v.BytesToClient)
	}
}

// What an adopted flow carried in another process was counted there.
func TestStatsOfAdopted(t *testing.T) {
	r := NewRegistry(Options{})
	s := web()
	s.Counters = Counters{BytesToBackend: 1000, BytesToClient: 2000}
	rec := r.Open(s)
	rec.Attach(PathBPF, pathOf(1, 2))
	for _, when := range []string{"live", "ended"} {
		b := r.Stats().Bytes
		if b[BytesKey{"web", ToBackend, PathBPF}] != 1 || b[BytesKey{"web", ToClient, PathBPF}] != 2 {
			t.Errorf("%s: %v", when, b)
		}
		rec.Finish(ByClient, ReasonClosed)
	}
}

// Whenever they are read, totals have not gone back and no flow is missing or
// counted twice.
func TestStatsNeverGoBack(t *testing.T) {
	const flows, threads = 300, 3
	r := NewRegistry(Options{EndedKept: 1})
	var writers, reader sync.WaitGroup
	stop := make(chan struct{})
	reader.Go(func() {
		var before Stats
		for done := false; !done; {
			select {
			case <-stop:
				done = true
			default:
			}
			now := r.Stats()
			checkForward(t, before, now)
			before = now
		}
		for k, n := range before.Active {
			if n != 0 {
				t.Errorf("%v: %d are open in the end", k, n)
			}
		}
		if n := before.Ended[EndedKey{"web", TCP, PathBPF, ByClient, ReasonClosed}]; n != flows*threads {
			t.Errorf("%d ended, want %d", n, flows*threads)
		}
		if n := before.Bytes[BytesKey{"web", ToBackend, PathUserspace}]; n != 100*flows*threads {
			t.Errorf("%d bytes in userspace, want %d", n, 100*flows*threads)
		}
		if n := before.Bytes[BytesKey{"web", ToBackend, PathBPF}]; n != 7*flows*threads {
			t.Errorf("%d bytes in the kernel, want %d", n, 7*flows*threads)
		}
	})
	for range threads {
		writers.Go(func() {
			for range flows {
				rec := r.Open(web())
				p := pathOf(0, 0)
				rec.Attach(PathUserspace, p)
				for range 10 {
					p.toBackend.Add(10)
				}
				rec.Attach(PathBPF, pathOf(7, 0))
				rec.Finish(ByClient, ReasonClosed)
			}
		})
	}
	writers.Wait()
	close(stop)
	reader.Wait()
}

func checkForward(t *testing.T, before, now Stats) {
	t.Helper()
	for k, n := range before.Ended {
		if now.Ended[k] < n {
			t.Errorf("%v went from %d to %d", k, n, now.Ended[k])
		}
	}
	for k, n := range before.Bytes {
		if now.Bytes[k] < n {
			t.Errorf("%v went from %d to %d", k, n, now.Bytes[k])
		}
	}
	// How many are open is read shard by shard: one that ends meanwhile and the next one
	// of its writer can both be in it.
	for k, n := range now.Active {
		if n < 0 {
			t.Errorf("%v: %d at once", k, n)
		}
	}
}

// A deleted service's sums go once its last flow has ended.
func TestForgetServices(t *testing.T) {
	r := NewRegistry(Options{})
	finished, live := r.Open(web()), r.Open(web())
	for _, rec := range []*Record{finished, live} {
		rec.Attach(PathUserspace, pathOf(1, 1))
	}
	finished.Finish(ByClient, ReasonClosed)
	key := EndedKey{"web", TCP, PathUserspace, ByClient, ReasonClosed}
	r.ForgetServices(func(service string) bool { return service == "web" })
	if r.Stats().Ended[key] != 1 {
		t.Fatal("the sums of a known service are gone")
	}
	live.Finish(ByClient, ReasonClosed)
	r.ForgetServices(func(string) bool { return false })
	if st := r.Stats(); len(st.Ended)+len(st.Bytes) != 0 {
		t.Errorf("left: %+v", st)
	}
}
