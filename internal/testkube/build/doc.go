// Command build makes sure that the programs of Kubernetes that tests run are built, and
// prints the directory that they are in.
package main
