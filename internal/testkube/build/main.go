package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/baton-lb/baton/internal/testkube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	began := time.Now()
	e, err := testkube.Build(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "build Kubernetes for tests:", err)
		os.Exit(1)
	}
	defer e.Close()
	if took := time.Since(began); took > 5*time.Second {
		fmt.Fprintf(os.Stderr, "built Kubernetes for tests in %s\n", took.Round(time.Second))
	}
	fmt.Println(e.Dir)
}
