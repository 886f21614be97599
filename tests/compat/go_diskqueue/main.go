// Plays calls on NSQ's diskqueue: a line in, a line out, so that a test can hold its own beside it.
//
//	open FOLDER NAME MAX_BYTES_PER_FILE    -> ok
//	put HEX, empty, close                  -> ok, or what the error says
//	get, peek                              -> 0xHEX, or none if the queue is empty
//	await                                  -> as get, for when the depth is not to be trusted
//	depth                                  -> a number
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nsqio/go-diskqueue"
)

const (
	maxMessageSize = 1 << 20
	syncEvery      = 2500
	syncTimeout    = time.Hour // the tests say when: close syncs
	patience       = 20 * time.Second
)

var queue diskqueue.Interface

func open(folder, name, maxBytes string) string {
	bytes, err := strconv.ParseInt(maxBytes, 10, 64)
	if err != nil {
		return err.Error()
	}
	quiet := func(diskqueue.LogLevel, string, ...interface{}) {}
	queue = diskqueue.New(name, folder, bytes, 0, maxMessageSize, syncEvery, syncTimeout, quiet)
	return "ok"
}

func put(text string) string {
	body, err := hex.DecodeString(text)
	if err != nil {
		return err.Error()
	}
	return said(queue.Put(body))
}

// The channel of a queue with messages gets one, unless they are damaged.
func take(messages <-chan []byte) string {
	if queue.Depth() == 0 {
		return "none"
	}
	return await(messages)
}

func await(messages <-chan []byte) string {
	select {
	case body := <-messages:
		return "0x" + hex.EncodeToString(body)
	case <-time.After(patience):
		return "nothing came"
	}
}

func said(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func play(words []string) string {
	switch words[0] {
	case "open":
		return open(words[1], words[2], words[3])
	case "put":
		return put(words[1])
	case "get":
		return take(queue.ReadChan())
	case "await":
		return await(queue.ReadChan())
	case "peek":
		return take(queue.PeekChan())
	case "depth":
		return strconv.FormatInt(queue.Depth(), 10)
	case "empty":
		return said(queue.Empty())
	case "close":
		return said(queue.Close())
	}
	return "unknown: " + words[0]
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 4*maxMessageSize)
	for lines.Scan() {
		fmt.Println(play(strings.Split(lines.Text(), " ")))
	}
}
