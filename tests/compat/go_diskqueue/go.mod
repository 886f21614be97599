module qindex.test/go_diskqueue

go 1.13

require github.com/nsqio/go-diskqueue v1.1.1-0.20211017194114-cc41549f81d5
