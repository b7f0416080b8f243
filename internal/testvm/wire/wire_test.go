package wire

import (
	"reflect"
	"testing"
	"time"
)

func TestJob(t *testing.T) {
	for _, j := range []Job{
		{},
		{Modules: []string{"sctp"}, Collect: true, Commands: []Command{
			{Args: []string{"a", "b \"c\"\n"}, Env: []string{"A=é"}, Dir: "/x", Timeout: time.Second, Merge: true}, {},
		}},
	} {
		b, err := j.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseJob(b); err != nil || !reflect.DeepEqual(got, j) {
			t.Errorf("got %+v, %v; want %+v", got, err, j)
		}
	}
	if _, err := ParseJob([]byte("{")); err == nil {
		t.Error("half a job is a job")
	}
}
