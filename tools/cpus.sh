#!/bin/sh
# cpus.sh - how many jobs to run at a time: the CPUs of this machine, or of a container's quota.
cpus=$(nproc)
quota=max period=1
groups=/sys/fs/cgroup
if [ -r $groups/cpu.max ]; then
    read -r quota period <$groups/cpu.max
elif [ -r $groups/cpu/cpu.cfs_quota_us ]; then
    read -r quota <$groups/cpu/cpu.cfs_quota_us
    read -r period <$groups/cpu/cpu.cfs_period_us
fi
case $quota in
'' | *[!0-9]*) ;; # "max" or -1: there is none
*) granted=$(((quota + period - 1) / period)) && [ "$granted" -lt "$cpus" ] && cpus=$granted ;;
esac
echo "$cpus"
