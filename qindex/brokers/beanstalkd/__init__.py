"""beanstalkd's binlog: `directory` has its tubes and jobs, `file` one file of the log."""
