package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/baton-lb/baton/internal/sysctl"
)

// closeWaitSetting is how long conntrack keeps connections one side of which has
// closed, in seconds.
const closeWaitSetting = "net/netfilter/nf_conntrack_tcp_timeout_close_wait"

// setHost changes what kube-proxy changes of the host, where that is there to be
// changed. What does not work keeps nothing from being served.
func (s *kubeSettings) setHost() (errs []error) {
	if s.closeWait > 0 {
		seconds := strconv.FormatInt(int64(s.closeWait/time.Second), 10)
		errs = appendError(errs, writeSetting(sysctl.Path(closeWaitSetting), seconds))
	}
	if s.oomScoreAdj != nil {
		errs = appendError(errs, writeSetting("/proc/self/oom_score_adj", strconv.Itoa(*s.oomScoreAdj)))
	}
	return errs
}

func appendError(errs []error, err error) []error {
	if err == nil {
		return errs
	}
	return append(errs, err)
}

// writeSetting writes one unless it is so already. One that the kernel does not have
// is no error.
func writeSetting(path, value string) error {
	now, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && string(now) == value+"\n" {
		return nil
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("set %s to %s: %w", path, value, err)
	}
	return nil
}
