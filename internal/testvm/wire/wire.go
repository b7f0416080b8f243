package wire

import (
	"encoding/json"
	"fmt"
	"time"
)

// Where host and guest find each other.
const (
	JobFile = "/etc/job.json" // of the guest
	Port    = "testvm"        // the virtio port's name
	OutDir  = "/out"          // of the guest: its files go back
)

// Job is what a machine is started for.
type Job struct {
	Modules  []string // kernel modules to load first; others load on demand
	Commands []Command
	Collect  bool // send the files in OutDir when all commands have ended
}

// Command is one program, run as root with nothing on standard input.
type Command struct {
	Args    []string
	Env     []string      // "KEY=value", beside PATH, HOME and the like
	Dir     string        // working directory, made if it is missing; default /root
	Timeout time.Duration // then it is killed; default: none of its own
	Merge   bool          // standard error is the same pipe as standard output
}

// ParseJob reads what [Job.Marshal] wrote.
func ParseJob(b []byte) (Job, error) {
	var j Job
	if err := json.Unmarshal(b, &j); err != nil {
		return Job{}, fmt.Errorf("parse job: %w", err)
	}
	return j, nil
}

// Marshal is the job as [JobFile] has it.
func (j Job) Marshal() ([]byte, error) { return json.Marshal(j) }

// Message is one thing that the guest says. One field is set.
type Message struct {
	Booted  string  // the kernel's release: commands follow
	Out     []byte  // the running command wrote this
	Err     []byte  // the same to standard error
	Status  *Status // the running command ended
	Files   []byte  // the next piece of a tar archive of OutDir
	Trouble string  // what the guest could not do; it goes on
	End     bool    // everything has been said
}

// Status is how a command ended.
type Status struct {
	Code     int  // its exit code; 128 + N if signal N killed it; 127 if it was not there
	TimedOut bool // its own timeout killed it
	Elapsed  time.Duration
}
