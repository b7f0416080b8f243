package store_test

import (
	"context"
	"fmt"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/store"
)

// printer is a Programmer that only says what it would do.
type printer struct{}

func (printer) Program(_ context.Context, c store.Change) []store.Failure {
	for _, name := range c.Services {
		if svc, ok := c.To.Service(name); ok {
			fmt.Println("program", name, "with", len(svc.Pool), "backends")
		} else {
			fmt.Println("remove", name)
		}
	}
	return nil
}

func Example() {
	s := store.New(store.Options{})
	s.Register(store.Frontends, "printer", printer{})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()

	web := lb.Default("web")
	fe, _ := lb.ParseFrontend("tcp://10.96.0.10:80")
	be, _ := lb.ParseBackend("10.202.1.2:8080")
	web.Frontends, web.Backends = []lb.Frontend{fe}, []lb.Backend{be}

	mine := s.Source("mine")
	if err := mine.Replace([]lb.Service{web}); err != nil {
		fmt.Println(err)
	}
	_ = s.Programmed(ctx, s.Snapshot().Revision)

	found, _ := s.Snapshot().Frontend(fe.FrontendKey)
	b, _ := found.Scheduler.Pick(sched.Request{})
	fmt.Println(fe, "is", found.Service.Name, "and leads to", b.Address)

	mine.Delete("web")
	_ = s.Programmed(ctx, s.Snapshot().Revision)
	stop()
	<-done
	// Output:
	// program web with 1 backends
	// tcp://10.96.0.10:80 is web and leads to 10.202.1.2:8080
	// remove web
}
